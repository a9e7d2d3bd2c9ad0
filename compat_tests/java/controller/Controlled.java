package org.apache.kafka.controller;

import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.metadata.*;
import org.apache.kafka.server.common.*;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Kafka's own controller classes, driven step by step from standard input, each step a frame: int length, byte what,
 * short version, then the bytes of a request or record. What comes back: int count of records, each as int length and
 * bytes (they are replayed here already), short error, int length and bytes of the answer (-1: none). It lies in
 * Kafka's package because the classes that decide are visible only there.
 */
public class Controlled {
    static class Clock implements Time {
        long ms = 1_000_000;

        public long milliseconds() {
            return ms;
        }

        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(ms);
        }

        public void sleep(long millis) {
            ms += millis;
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }

        public <T> T waitForFuture(java.util.concurrent.CompletableFuture<T> future, long deadlineNs) {
            throw new UnsupportedOperationException();
        }
    }

    static class Answer {
        List<ApiMessageAndVersion> records = List.of();
        short error = 0;
        ApiMessage message = null;
    }

    final Clock clock = new Clock();
    final SnapshotRegistry snapshots = new SnapshotRegistry(new LogContext());
    final FeatureControlManager features = new FeatureControlManager.Builder().setSnapshotRegistry(snapshots)
        .setQuorumFeatures(new QuorumFeatures(0, QuorumFeatures.defaultSupportedFeatureMap(true), List.of(0))).build();
    final ConfigurationControlManager configs = new ConfigurationControlManager.Builder().setSnapshotRegistry(snapshots)
        .setFeatureControl(features).setKafkaConfigSchema(kafka.server.KafkaRaftServer.configSchema()).build();
    final ClusterControlManager cluster;
    final ReplicationControlManager replication;
    long nextOffset = 0;

    Controlled(String clusterId, int sessionMs) {
        ReplicationControlManager[] late = new ReplicationControlManager[1];
        cluster = new ClusterControlManager.Builder().setSnapshotRegistry(snapshots).setTime(clock).setClusterId(clusterId)
            .setSessionTimeoutNs(TimeUnit.MILLISECONDS.toNanos(sessionMs)).setFeatureControlManager(features)
            .setBrokerShutdownHandler((id, clean, records) -> late[0].handleBrokerShutdown(id, clean, records)).build();
        replication = late[0] = new ReplicationControlManager.Builder().setSnapshotRegistry(snapshots)
            .setConfigurationControl(configs).setClusterControl(cluster).setFeatureControl(features).build();
    }

    void replay(ApiMessage record) {
        long offset = nextOffset++;
        if (record instanceof RegisterBrokerRecord r) cluster.replay(r, offset);
        else if (record instanceof UnregisterBrokerRecord r) cluster.replay(r);
        else if (record instanceof BrokerRegistrationChangeRecord r) cluster.replay(r);
        else if (record instanceof TopicRecord r) replication.replay(r);
        else if (record instanceof PartitionRecord r) replication.replay(r);
        else if (record instanceof PartitionChangeRecord r) replication.replay(r);
        else if (record instanceof ConfigRecord r) configs.replay(r);
        else if (record instanceof FeatureLevelRecord r) features.replay(r);
        else throw new IllegalArgumentException(record.toString());
    }

    <T> T take(Answer answer, ControllerResult<T> result) {
        answer.records = result.records();
        return result.response();
    }

    ControllerRequestContext context(ApiKeys key, short version) {
        return new ControllerRequestContext(
            new RequestHeader(key, version, "", 0).data(), KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
    }

    void decide(int what, short version, ByteBufferAccessor in, Answer answer) {
        switch (what) {
            case 10 -> {
                BrokerRegistrationRequestData request = new BrokerRegistrationRequestData(in, version);
                Map<String, Short> finalized = new HashMap<>(features.finalizedFeatures(Long.MAX_VALUE).featureMap());
                finalized.put(KRaftVersion.FEATURE_NAME, (short) 1);
                var known = new FinalizedControllerFeatures(finalized, Long.MAX_VALUE);
                var reply = take(answer, cluster.registerBroker(request, nextOffset, known, version >= 3));
                answer.message = new BrokerRegistrationResponseData().setBrokerEpoch(reply.epoch());
            }
            case 11 -> {
                BrokerHeartbeatRequestData request = new BrokerHeartbeatRequestData(in, version);
                cluster.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
                OptionalLong registered = cluster.registerBrokerRecordOffset(request.brokerId());
                if (registered.isEmpty()) throw new org.apache.kafka.common.errors.StaleBrokerEpochException("");
                var reply = take(answer, replication.processBrokerHeartbeat(request, registered.getAsLong()));
                if (reply.inControlledShutdown()) {
                    cluster.heartbeatManager().maybeUpdateControlledShutdownOffset(
                        request.brokerId(), nextOffset + answer.records.size() - 1);
                }
                answer.message = new BrokerHeartbeatResponseData().setIsCaughtUp(reply.isCaughtUp())
                    .setIsFenced(reply.isFenced()).setShouldShutDown(reply.shouldShutDown());
            }
            case 12 -> answer.message = take(answer, replication.alterPartition(
                context(ApiKeys.ALTER_PARTITION, version), new AlterPartitionRequestData(in, version)));
            case 13 -> answer.message = take(answer, replication.electLeaders(new ElectLeadersRequestData(in, version)));
            case 14 -> answer.message = take(answer, replication.alterPartitionReassignments(
                new AlterPartitionReassignmentsRequestData(in, version)));
            case 15 -> answer.message = replication.listPartitionReassignments(
                new ListPartitionReassignmentsRequestData(in, version).topics(), Long.MAX_VALUE);
            case 16 -> take(answer, replication.unregisterBroker(new UnregisterBrokerRequestData(in, version).brokerId()));
            case 17 -> answer.error = (short) (take(answer, replication.maybeFenceOneStaleBroker()) ? 1 : 0);
            case 18 -> answer.error = (short) (take(answer, replication.maybeBalancePartitionLeaders()) ? 1 : 0);
            case 19 -> answer.error = (short) (take(answer, replication.maybeElectUncleanLeaders()) ? 1 : 0);
            case 20 -> answer.message = take(answer, replication.handleAssignReplicasToDirs(
                new AssignReplicasToDirsRequestData(in, version)));
            default -> throw new IllegalArgumentException("" + what);
        }
    }

    Answer step(int what, short version, ByteBuffer body) {
        Answer answer = new Answer();
        ByteBufferAccessor in = new ByteBufferAccessor(body);
        if (what == 0) {
            replay(new MetadataRecordSerde().read(in, body.remaining()).message());
        } else if (what == 1) {
            clock.ms += body.getLong();
        } else if (what == 2) {
            cluster.deactivate();
            cluster.activate();
        } else {
            try {
                decide(what, version, in, answer);
            } catch (org.apache.kafka.common.errors.ApiException error) {
                answer.error = Errors.forException(error).code();
            }
            for (ApiMessageAndVersion record : answer.records) replay(record.message());
        }
        return answer;
    }

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        Controlled now = null;
        while (true) {
            int length;
            try {
                length = in.readInt();
            } catch (EOFException end) {
                break;
            }
            int what = in.readByte();
            short version = in.readShort();
            byte[] bytes = in.readNBytes(length - 3);
            if (what == 99) {
                now = new Controlled(new String(bytes), version);
                continue;
            }
            Answer answer = now.step(what, version, ByteBuffer.wrap(bytes));
            out.writeInt(answer.records.size());
            ObjectSerializationCache cache = new ObjectSerializationCache();
            MetadataRecordSerde serde = new MetadataRecordSerde();
            for (ApiMessageAndVersion record : answer.records) {
                ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(record, cache));
                serde.write(record, cache, new ByteBufferAccessor(buffer));
                out.writeInt(buffer.position());
                out.write(buffer.array(), 0, buffer.position());
            }
            out.writeShort(answer.error);
            if (answer.message == null) {
                out.writeInt(-1);
            } else {
                ByteBuffer buffer = ByteBuffer.allocate(answer.message.size(cache, version));
                answer.message.write(new ByteBufferAccessor(buffer), cache, version);
                out.writeInt(buffer.position());
                out.write(buffer.array(), 0, buffer.position());
            }
            out.flush();
        }
    }
}
