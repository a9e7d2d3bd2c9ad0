package kafka.server.share;

import java.io.*;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ShareFetchResponseData.AcquiredRecords;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.share.PersisterStateBatchCombiner;
import org.apache.kafka.server.purgatory.*;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.fetch.*;
import org.apache.kafka.server.share.persister.*;
import org.apache.kafka.server.storage.log.*;
import org.apache.kafka.server.util.timer.TimerTaskEntry;

/**
 * Driver of Kafka's SharePartition. Each line of standard input is a step; the result is a line that begins with "= ":
 * result of the step, persisted state, start offset, end offset, number of completed deliveries, next fetch offset,
 * whether records can be acquired, and the batches in flight. The step "combine" calls PersisterStateBatchCombiner. The
 * class is in Kafka's package because it calls package-private members of SharePartition.
 */
public class SharePartitionDriver {
    static final Uuid TOPIC = new Uuid(1, 2);
    static long now = 0;
    static String mode = "now";
    static String stored = "";
    static final StringBuilder written = new StringBuilder();
    static final ArrayDeque<CompletableFuture<WriteShareGroupStateResult>> pendingWrites = new ArrayDeque<>();

    static class Clock implements Time {
        public long milliseconds() { return now; }
        public long hiResClockMs() { return now; }
        public long nanoseconds() { return now * 1_000_000; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
        public org.apache.kafka.common.utils.Timer timer(long ms) { return null; }
        public <T> T waitForFuture(CompletableFuture<T> future, long deadlineNanos) { return null; }
    }

    static class Timers implements org.apache.kafka.server.util.timer.Timer {
        final TreeMap<Long, List<TimerTaskEntry>> due = new TreeMap<>();

        public void add(org.apache.kafka.server.util.timer.TimerTask task) {
            TimerTaskEntry entry = new TimerTaskEntry(task, now + Math.max(0, task.delayMs));
            due.computeIfAbsent(entry.expirationMs, at -> new ArrayList<>()).add(entry);
        }

        void advance(long to) {
            while (!due.isEmpty() && due.firstKey() <= to) {
                now = Math.max(now, due.firstKey());
                for (TimerTaskEntry entry : due.pollFirstEntry().getValue())
                    if (!entry.cancelled()) entry.timerTask.run();
            }
            now = to;
        }

        public boolean advanceClock(long ms) { return false; }
        public int size() { return 0; }
        public void close() { }
    }

    static WriteShareGroupStateResult result(short code) {
        PartitionErrorData row = PartitionFactory.newPartitionErrorData(0, code, "x");
        return new WriteShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(TOPIC, List.of(row)))).build();
    }

    static List<PersisterStateBatch> batches(String text) {
        List<PersisterStateBatch> out = new ArrayList<>();
        for (String part : text.split(";")) {
            if (part.isEmpty()) continue;
            String[] n = part.split(",");
            out.add(new PersisterStateBatch(Long.parseLong(n[0]), Long.parseLong(n[1]), Byte.parseByte(n[3]), Short.parseShort(n[2])));
        }
        return out;
    }

    static class ScriptedPersister implements Persister {
        public CompletableFuture<InitializeShareGroupStateResult> initializeState(InitializeShareGroupStateParameters r) { return null; }
        public CompletableFuture<DeleteShareGroupStateResult> deleteState(DeleteShareGroupStateParameters r) { return null; }
        public CompletableFuture<ReadShareGroupStateSummaryResult> readSummary(ReadShareGroupStateSummaryParameters r) { return null; }
        public void stop() { }

        public CompletableFuture<ReadShareGroupStateResult> readState(ReadShareGroupStateParameters r) {
            String[] fields = stored.split("\\|", -1);
            PartitionAllData row = PartitionFactory.newPartitionAllData(0, 1, Long.parseLong(fields[0]), (short) 0, "", batches(fields[1]));
            return CompletableFuture.completedFuture(
                new ReadShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(TOPIC, List.of(row)))).build());
        }

        public CompletableFuture<WriteShareGroupStateResult> writeState(WriteShareGroupStateParameters r) {
            PartitionStateBatchData row = r.groupTopicPartitionData().topicsData().get(0).partitions().get(0);
            written.append(" ").append(row.startOffset()).append("/").append(row.deliveryCompleteCount()).append(":");
            for (PersisterStateBatch b : row.stateBatches())
                written.append(b.firstOffset() + "-" + b.lastOffset() + "=" + b.deliveryState() + "x" + b.deliveryCount() + ",");
            if (mode.equals("now")) return CompletableFuture.completedFuture(result((short) 0));
            if (mode.equals("fail")) return CompletableFuture.completedFuture(result(Errors.UNKNOWN_SERVER_ERROR.code()));
            pendingWrites.add(new CompletableFuture<>());
            return pendingWrites.peekLast();
        }
    }

    static Field open(Class<?> cls, String name) throws Exception {
        Field field = cls.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    /** Create an instance without its constructor and set one field, the only one that SharePartition reads. */
    static <T> T instanceWithField(Class<T> cls, String field, Object value) throws Exception {
        sun.misc.Unsafe unsafe = (sun.misc.Unsafe) open(sun.misc.Unsafe.class, "theUnsafe").get(null);
        Object out = unsafe.allocateInstance(cls);
        unsafe.putObject(out, unsafe.objectFieldOffset(cls.getDeclaredField(field)), value);
        return cls.cast(out);
    }

    static String describe(InFlightState state) {
        return state.state().id() + "x" + state.deliveryCount() + "@" + state.memberId() + (state.hasOngoingStateTransition() ? "!" : "");
    }

    static Timers timers;
    static SharePartition partition;

    static String acquired(String[] w) {
        ByteBuffer all = ByteBuffer.allocate(1 << 16);
        for (String range : w[6].split(",")) {
            String[] ends = range.split("-");
            SimpleRecord[] records = new SimpleRecord[Integer.parseInt(ends[1]) - Integer.parseInt(ends[0]) + 1];
            Arrays.fill(records, new SimpleRecord(new byte[]{1}));
            all.put(MemoryRecords.withRecords(Long.parseLong(ends[0]), Compression.NONE, records).buffer());
        }
        all.flip();
        FetchPartitionData read = new FetchPartitionData(Errors.NONE, 9999, 0, MemoryRecords.readableRecords(all),
            Optional.empty(), OptionalLong.empty(), Optional.empty(), OptionalInt.empty(), false);
        ShareAcquireMode acquireMode = w[4].equals("1") ? ShareAcquireMode.RECORD_LIMIT : ShareAcquireMode.BATCH_OPTIMIZED;
        StringBuilder out = new StringBuilder();
        for (AcquiredRecords x : partition.acquire(w[1], acquireMode, Integer.parseInt(w[3]), Integer.parseInt(w[2]),
                Long.parseLong(w[5]), read, FetchIsolation.HIGH_WATERMARK).acquiredRecords())
            out.append(x.firstOffset() + "-" + x.lastOffset() + "x" + x.deliveryCount() + ",");
        return out.toString();
    }

    static String acknowledged(String[] w) throws Exception {
        List<ShareAcknowledgementBatch> acknowledgements = new ArrayList<>();
        for (String part : w[2].split(";")) {
            String[] n = part.split(",");
            List<Byte> types = new ArrayList<>();
            for (char c : n[2].toCharArray()) types.add((byte) (c - '0'));
            acknowledgements.add(new ShareAcknowledgementBatch(Long.parseLong(n[0]), Long.parseLong(n[1]), types));
        }
        CompletableFuture<Void> done = partition.acknowledge(w[1], acknowledgements);
        if (!done.isCompletedExceptionally()) return "";
        try {
            done.get();
            return "";
        } catch (ExecutionException e) {
            return "E" + (written.length() > 0 ? "W" : Errors.forException(e.getCause()).code());
        }
    }

    static String step(String[] w, kafka.server.ReplicaManager replicas, GroupConfigManager groups) throws Exception {
        switch (w[0]) {
            case "new":
                now = 0;
                timers = new Timers();
                pendingWrites.clear();
                mode = "now";
                stored = w[4];
                partition = new SharePartition("g", new TopicIdPartition(TOPIC, 0, "t"), 1, Integer.parseInt(w[2]),
                    Integer.parseInt(w[1]), Integer.parseInt(w[3]), timers, new Clock(), new ScriptedPersister(), replicas, groups, null);
                partition.maybeInitialize().get();
                return "";
            case "fetch": return acquired(w);
            case "ack": return acknowledged(w);
            case "release": partition.releaseAcquiredRecords(w[1]); return "";
            case "tick": timers.advance(now + Long.parseLong(w[1])); return "";
            case "mode": mode = w[1]; return "";
            case "complete":
                if (!pendingWrites.isEmpty()) pendingWrites.poll().complete(result(w[1].equals("ok") ? 0 : Errors.UNKNOWN_SERVER_ERROR.code()));
                return "";
            default: partition.updateCacheAndOffsets(Long.parseLong(w[1])); return "";
        }
    }

    static String combined(String[] w) {
        StringBuilder out = new StringBuilder();
        for (PersisterStateBatch b : new PersisterStateBatchCombiner(batches(w[2]), batches(w[3]), Long.parseLong(w[1])).combineStateBatches())
            out.append(b.firstOffset() + "," + b.lastOffset() + "," + b.deliveryCount() + "," + b.deliveryState() + ";");
        return out.toString();
    }

    static String describeInFlight() throws Exception {
        StringBuilder out = new StringBuilder();
        for (InFlightBatch b : partition.cachedState().values()) {
            out.append(b.firstOffset() + "-" + b.lastOffset() + "[");
            if (b.offsetState() == null) out.append(describe((InFlightState) open(InFlightBatch.class, "batchState").get(b)));
            else for (InFlightState s : b.offsetState().values()) out.append(describe(s) + " ");
            out.append("]");
        }
        return out.toString();
    }

    public static void main(String[] args) throws Exception {
        kafka.server.ReplicaManager replicas = instanceWithField(kafka.server.ReplicaManager.class, "delayedShareFetchPurgatory",
            new DelayedOperationPurgatory<DelayedOperation>("share", 0));
        GroupConfigManager groups = instanceWithField(GroupConfigManager.class, "configMap", new ConcurrentHashMap<>());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split(" ", -1);
            written.setLength(0);
            if (w[0].equals("combine")) {
                out.println("= " + combined(w));
                continue;
            }
            String outcome, offsets;
            try {
                outcome = step(w, replicas, groups);
            } catch (Throwable e) {
                outcome = "X" + e.getClass().getSimpleName();
            }
            try {
                long next = partition.nextFetchOffset();
                offsets = partition.startOffset() + " " + partition.endOffset() + " " + partition.deliveryCompleteCount() + " " + next + " " + partition.canAcquireRecords();
            } catch (Throwable e) {
                offsets = "X" + e.getClass().getSimpleName();
            }
            out.println("= " + outcome + "|" + (w[0].equals("tick") ? "" : written) + "|" + offsets + "|" + describeInFlight());
        }
        out.flush();
        System.exit(0);
    }
}
