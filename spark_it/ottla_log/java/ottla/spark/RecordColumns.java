package ottla.spark;

import java.util.Arrays;

/**
 * Rows of decoded records, column by column. Keys, values and header fields are ranges of one byte array; a length of
 * -1 is null.
 */
final class RecordColumns {
    private static final int INITIAL_ROWS = 4096;

    /** Bytes that the ranges refer to. */
    byte[] data;

    int rows;
    int[] keyStarts = new int[INITIAL_ROWS];
    int[] keyLengths = new int[INITIAL_ROWS];
    int[] valueStarts = new int[INITIAL_ROWS];
    int[] valueLengths = new int[INITIAL_ROWS];
    long[] offsets = new long[INITIAL_ROWS];
    long[] timestamps = new long[INITIAL_ROWS];
    int[] timestampTypes = new int[INITIAL_ROWS];
    int[] headerIndexes = new int[INITIAL_ROWS];
    int[] headerCounts = new int[INITIAL_ROWS];

    int headers;
    int[] headerKeyStarts = new int[64];
    int[] headerKeyLengths = new int[64];
    int[] headerValueStarts = new int[64];
    int[] headerValueLengths = new int[64];

    void clear() {
        rows = 0;
        headers = 0;
    }

    void ensureRows(int count) {
        int needed = rows + count;
        if (needed > offsets.length) {
            int size = Math.max(needed, 2 * offsets.length);
            keyStarts = Arrays.copyOf(keyStarts, size);
            keyLengths = Arrays.copyOf(keyLengths, size);
            valueStarts = Arrays.copyOf(valueStarts, size);
            valueLengths = Arrays.copyOf(valueLengths, size);
            offsets = Arrays.copyOf(offsets, size);
            timestamps = Arrays.copyOf(timestamps, size);
            timestampTypes = Arrays.copyOf(timestampTypes, size);
            headerIndexes = Arrays.copyOf(headerIndexes, size);
            headerCounts = Arrays.copyOf(headerCounts, size);
        }
    }

    void addHeader(int keyStart, int keyLength, int valueStart, int valueLength) {
        if (headers == headerKeyStarts.length) {
            headerKeyStarts = Arrays.copyOf(headerKeyStarts, 2 * headers);
            headerKeyLengths = Arrays.copyOf(headerKeyLengths, 2 * headers);
            headerValueStarts = Arrays.copyOf(headerValueStarts, 2 * headers);
            headerValueLengths = Arrays.copyOf(headerValueLengths, 2 * headers);
        }
        headerKeyStarts[headers] = keyStart;
        headerKeyLengths[headers] = keyLength;
        headerValueStarts[headers] = valueStart;
        headerValueLengths[headers++] = valueLength;
    }
}
