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
 * Driver of Kafka's controller classes. Each step is a frame on standard input: int length, byte code, short version,
 * then the bytes of a request or record. Each result is written to standard output: int number of records, each record
 * as int length and bytes (already replayed), short error code, int length and bytes of the response (-1: none). The
 * class is in Kafka's package because ReplicationControlManager and its dependencies are package-private.
 */
public class ControllerDriver {
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

    static class StepResult {
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

    ControllerDriver(String clusterId, int sessionMs) {
        ReplicationControlManager[] replicationRef = new ReplicationControlManager[1];
        cluster = new ClusterControlManager.Builder().setSnapshotRegistry(snapshots).setTime(clock).setClusterId(clusterId)
            .setSessionTimeoutNs(TimeUnit.MILLISECONDS.toNanos(sessionMs)).setFeatureControlManager(features)
            .setBrokerShutdownHandler((id, clean, records) -> replicationRef[0].handleBrokerShutdown(id, clean, records)).build();
        replication = replicationRef[0] = new ReplicationControlManager.Builder().setSnapshotRegistry(snapshots)
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

    <T> T recordResult(StepResult stepResult, ControllerResult<T> result) {
        stepResult.records = result.records();
        return result.response();
    }

    ControllerRequestContext context(ApiKeys key, short version) {
        return new ControllerRequestContext(
            new RequestHeader(key, version, "", 0).data(), KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
    }

    void decide(int code, short version, ByteBufferAccessor in, StepResult stepResult) {
        switch (code) {
            case 10 -> {
                BrokerRegistrationRequestData request = new BrokerRegistrationRequestData(in, version);
                Map<String, Short> finalized = new HashMap<>(features.finalizedFeatures(Long.MAX_VALUE).featureMap());
                finalized.put(KRaftVersion.FEATURE_NAME, (short) 1);
                var finalizedFeatures = new FinalizedControllerFeatures(finalized, Long.MAX_VALUE);
                var reply = recordResult(stepResult, cluster.registerBroker(request, nextOffset, finalizedFeatures, version >= 3));
                stepResult.message = new BrokerRegistrationResponseData().setBrokerEpoch(reply.epoch());
            }
            case 11 -> {
                BrokerHeartbeatRequestData request = new BrokerHeartbeatRequestData(in, version);
                cluster.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
                OptionalLong registered = cluster.registerBrokerRecordOffset(request.brokerId());
                if (registered.isEmpty()) throw new org.apache.kafka.common.errors.StaleBrokerEpochException("");
                var reply = recordResult(stepResult, replication.processBrokerHeartbeat(request, registered.getAsLong()));
                if (reply.inControlledShutdown()) {
                    cluster.heartbeatManager().maybeUpdateControlledShutdownOffset(
                        request.brokerId(), nextOffset + stepResult.records.size() - 1);
                }
                stepResult.message = new BrokerHeartbeatResponseData().setIsCaughtUp(reply.isCaughtUp())
                    .setIsFenced(reply.isFenced()).setShouldShutDown(reply.shouldShutDown());
            }
            case 12 -> stepResult.message = recordResult(stepResult, replication.alterPartition(
                context(ApiKeys.ALTER_PARTITION, version), new AlterPartitionRequestData(in, version)));
            case 13 -> stepResult.message = recordResult(stepResult, replication.electLeaders(new ElectLeadersRequestData(in, version)));
            case 14 -> stepResult.message = recordResult(stepResult, replication.alterPartitionReassignments(
                new AlterPartitionReassignmentsRequestData(in, version)));
            case 15 -> stepResult.message = replication.listPartitionReassignments(
                new ListPartitionReassignmentsRequestData(in, version).topics(), Long.MAX_VALUE);
            case 16 -> recordResult(stepResult, replication.unregisterBroker(new UnregisterBrokerRequestData(in, version).brokerId()));
            case 17 -> stepResult.error = (short) (recordResult(stepResult, replication.maybeFenceOneStaleBroker()) ? 1 : 0);
            case 18 -> stepResult.error = (short) (recordResult(stepResult, replication.maybeBalancePartitionLeaders()) ? 1 : 0);
            case 19 -> stepResult.error = (short) (recordResult(stepResult, replication.maybeElectUncleanLeaders()) ? 1 : 0);
            case 20 -> stepResult.message = recordResult(stepResult, replication.handleAssignReplicasToDirs(
                new AssignReplicasToDirsRequestData(in, version)));
            default -> throw new IllegalArgumentException("" + code);
        }
    }

    StepResult step(int code, short version, ByteBuffer body) {
        StepResult stepResult = new StepResult();
        ByteBufferAccessor in = new ByteBufferAccessor(body);
        if (code == 0) {
            replay(new MetadataRecordSerde().read(in, body.remaining()).message());
        } else if (code == 1) {
            clock.ms += body.getLong();
        } else if (code == 2) {
            cluster.deactivate();
            cluster.activate();
        } else {
            try {
                decide(code, version, in, stepResult);
            } catch (org.apache.kafka.common.errors.ApiException error) {
                stepResult.error = Errors.forException(error).code();
            }
            for (ApiMessageAndVersion record : stepResult.records) replay(record.message());
        }
        return stepResult;
    }

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        ControllerDriver driver = null;
        while (true) {
            int length;
            try {
                length = in.readInt();
            } catch (EOFException end) {
                break;
            }
            int code = in.readByte();
            short version = in.readShort();
            byte[] bytes = in.readNBytes(length - 3);
            if (code == 99) {
                driver = new ControllerDriver(new String(bytes), version);
                continue;
            }
            StepResult stepResult = driver.step(code, version, ByteBuffer.wrap(bytes));
            out.writeInt(stepResult.records.size());
            ObjectSerializationCache cache = new ObjectSerializationCache();
            MetadataRecordSerde serde = new MetadataRecordSerde();
            for (ApiMessageAndVersion record : stepResult.records) {
                ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(record, cache));
                serde.write(record, cache, new ByteBufferAccessor(buffer));
                out.writeInt(buffer.position());
                out.write(buffer.array(), 0, buffer.position());
            }
            out.writeShort(stepResult.error);
            if (stepResult.message == null) {
                out.writeInt(-1);
            } else {
                ByteBuffer buffer = ByteBuffer.allocate(stepResult.message.size(cache, version));
                stepResult.message.write(new ByteBufferAccessor(buffer), cache, version);
                out.writeInt(buffer.position());
                out.write(buffer.array(), 0, buffer.position());
            }
            out.flush();
        }
    }
}
