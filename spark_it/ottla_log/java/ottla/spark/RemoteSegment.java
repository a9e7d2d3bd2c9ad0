package ottla.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Optional;
import org.apache.hadoop.fs.FSDataInputStream;
import ottla.spark.SegmentFormat.CorruptObject;

/** Segment in the remote store of tiered storage. */
record RemoteSegment(SegmentObject object, LogOptions options) implements Segment {
    static final byte[] NO_BYTES = new byte[0];
    private static final int READ_AHEAD_BYTES = 1 << 20;

    @Override
    public long baseOffset() {
        return object.startOffset();
    }

    @Override
    public long lastOffset() {
        return object.endOffset();
    }

    @Override
    public long maxTimestamp() {
        return object.maxTimestampMs();
    }

    @Override
    public long sizeInBytes() {
        return object.recordBytes();
    }

    @Override
    public String path() {
        return options.remoteStore.pathOf(object.name());
    }

    @Override
    public String indexPath(Index index) {
        return path();
    }

    @Override
    public SegmentInput open() throws IOException {
        byte[] checksums = readPart(SegmentObject.CHECKSUMS).orElse(NO_BYTES);
        return new ObjectInput(checksums, options.remoteStore.open(object.name(), object.objectBytes()));
    }

    @Override
    public Optional<ByteBuffer> readIndex(Index index) throws IOException {
        return readPart(index.partName).map(ByteBuffer::wrap);
    }

    /** Return a part of the object, none if it has no such part; empty if it is damaged and damage is to be skipped. */
    Optional<byte[]> readPart(String name) throws IOException {
        try {
            return Optional.of(SegmentFormat.readPart(options.remoteStore, object, name));
        } catch (CorruptObject damage) {
            DataLoss.reportDamage("Damaged object: " + path() + ": " + damage.getMessage(), options);
            return Optional.empty();
        }
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof RemoteSegment segment && segment.object.name().equals(object.name());
    }

    @Override
    public int hashCode() {
        return object.name().hashCode();
    }

    /** Open object: whole chunks of records are read and compared with their checksums. */
    private final class ObjectInput implements SegmentInput {
        private final ByteBuffer checksums;
        private final FSDataInputStream stream;
        private byte[] chunks = new byte[0];
        private long chunksPosition;
        private int chunksBytes;

        ObjectInput(byte[] checksums, FSDataInputStream stream) {
            this.checksums = ByteBuffer.wrap(checksums);
            this.stream = stream;
        }

        @Override
        public long size() {
            return object.recordBytes();
        }

        @Override
        public int read(byte[] target, int at, int length, long position) throws IOException {
            long end = Math.min(position + length, size());
            int done = 0;
            while (position + done < end) {
                long from = position + done;
                if (from < chunksPosition || from >= chunksPosition + chunksBytes) {
                    load(from, end);
                }
                int bytes = (int) Math.min(end, chunksPosition + chunksBytes) - (int) from;
                System.arraycopy(chunks, (int) (from - chunksPosition), target, at + done, bytes);
                done += bytes;
            }
            return done;
        }

        /** Read the chunks of a range, of at most so many bytes; one that continues the last read is read ahead. */
        private void load(long from, long to) throws IOException {
            int size = object.checksumChunkBytes();
            long first = from / size * size;
            boolean isSequential = chunksBytes > 0 && first == chunksPosition + chunksBytes;
            long wanted = isSequential ? Math.max(to, first + READ_AHEAD_BYTES) : to;
            long limit = first + Math.max(size, READ_AHEAD_BYTES / size * size);
            long last = Math.min(Math.min((wanted + size - 1) / size * size, limit), size());
            int bytes = (int) (last - first);
            if (chunks.length < bytes) {
                chunks = new byte[bytes];
            }
            chunksBytes = 0;
            options.remoteStore.read(stream, object.name(), first, chunks, bytes);
            chunksPosition = first;
            chunksBytes = bytes;
            for (int at = 0; at < bytes; at += size) {
                int entry = (int) ((first + at) / size) * Integer.BYTES;
                boolean isKnown = entry + Integer.BYTES <= checksums.capacity();
                int crc = SegmentFormat.crc32c(chunks, at, Math.min(size, bytes - at));
                if (isKnown && checksums.getInt(entry) != crc) {
                    DataLoss.reportDamage(
                            "Damaged object: " + path() + ": records at position " + (first + at)
                                    + " are damaged: wrong checksum",
                            options);
                }
            }
        }

        @Override
        public void close() throws IOException {
            stream.close();
        }
    }
}
