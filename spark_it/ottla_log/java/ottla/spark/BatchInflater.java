package ottla.spark;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.utils.BufferSupplier;

/** Decompression of batches by Kafka's codecs into one growing array. */
final class BatchInflater implements AutoCloseable {
    private static final int INITIAL_BYTES = 1 << 20;

    private final BufferSupplier buffers = BufferSupplier.create();
    private final Compression[] codecs = new Compression[8];

    /** Decompressed bytes; {@code end} of them are in use. */
    byte[] bytes = new byte[INITIAL_BYTES];

    int end;

    /** Append the decompressed records of a batch; on an error {@code end} is as before. */
    void append(BatchHeader header, byte[] source, int start, int length) throws IOException {
        int before = end;
        try (InputStream stream = codec(header.codec())
                .wrapForInput(ByteBuffer.wrap(source, start, length), header.magic, buffers)) {
            int read = 0;
            while (read >= 0) {
                end += read;
                if (end == bytes.length) {
                    bytes = Arrays.copyOf(bytes, 2 * bytes.length);
                }
                read = stream.read(bytes, end, bytes.length - end);
            }
        } catch (IOException | RuntimeException error) {
            end = before;
            throw error instanceof IOException failed ? failed : new IOException(error);
        }
    }

    /** Append a field of a record that Kafka's classes decoded; return its length, -1 for null. */
    int appendField(ByteBuffer field) {
        if (field == null) {
            return -1;
        }
        int length = field.remaining();
        while (bytes.length - end < length) {
            bytes = Arrays.copyOf(bytes, 2 * bytes.length);
        }
        field.get(bytes, end, length);
        end += length;
        return length;
    }

    private Compression codec(int id) {
        if (codecs[id] == null) {
            codecs[id] = Compression.of(CompressionType.forId(id)).build();
        }
        return codecs[id];
    }

    @Override
    public void close() {
        buffers.close();
    }
}
