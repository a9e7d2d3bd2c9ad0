package ottla.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Optional;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Segment in a log directory.
 *
 * @param baseOffset the offset in its name
 * @param file the path of the {@code .log} file, or of the {@code .log.swap} file that is about to replace it
 */
record LocalSegment(long baseOffset, Path file) implements Segment {
    private static final Pattern NAME = Pattern.compile("([0-9]{20})\\.log(\\.swap)?");
    private static final int MAX_LISTINGS = 20;

    /** Return the segments of a partition directory by base offset; two equal listings make sure of a rename's end. */
    static TreeMap<Long, Segment> list(Path directory) throws IOException {
        TreeMap<Long, Segment> before = listOnce(directory);
        for (int number = 0; number < MAX_LISTINGS; number++) {
            TreeMap<Long, Segment> after = listOnce(directory);
            if (after.equals(before)) {
                break;
            }
            before = after;
        }
        return before;
    }

    private static TreeMap<Long, Segment> listOnce(Path directory) throws IOException {
        TreeMap<Long, Segment> out = new TreeMap<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(directory)) {
            for (Path file : files) {
                Matcher name = NAME.matcher(file.getFileName().toString());
                if (name.matches()) {
                    long baseOffset = Long.parseLong(name.group(1));
                    Segment segment = new LocalSegment(baseOffset, file);
                    if (name.group(2) == null) {
                        out.put(baseOffset, segment);
                    } else {
                        out.putIfAbsent(baseOffset, segment);
                    }
                }
            }
        }
        return out;
    }

    @Override
    public long lastOffset() {
        return Long.MAX_VALUE;
    }

    @Override
    public long maxTimestamp() {
        return Long.MAX_VALUE;
    }

    @Override
    public long sizeInBytes() throws IOException {
        return Files.size(file);
    }

    @Override
    public SegmentInput open() throws IOException {
        return new FileInput(FileChannel.open(file, StandardOpenOption.READ));
    }

    @Override
    public Optional<ByteBuffer> readIndex(Index index) throws IOException {
        return Optional.of(readIfPresent(indexFile(index)));
    }

    private Path indexFile(Index index) {
        return file.resolveSibling(file.getFileName().toString().replaceFirst("\\.log", "." + index.fileSuffix));
    }

    /** Return the bytes of a file; none if it is missing. */
    static ByteBuffer readIfPresent(Path file) throws IOException {
        try {
            return ByteBuffer.wrap(Files.readAllBytes(file));
        } catch (NoSuchFileException missing) {
            return ByteBuffer.allocate(0);
        }
    }

    @Override
    public String path() {
        return file.toString();
    }

    @Override
    public String indexPath(Index index) {
        return indexFile(index).toString();
    }

    /** Open file; its bytes stay readable when it is deleted or replaced. */
    private record FileInput(FileChannel channel) implements SegmentInput {
        @Override
        public long size() throws IOException {
            return channel.size();
        }

        @Override
        public int read(byte[] target, int at, int length, long position) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(target, at, length);
            while (buffer.hasRemaining() && channel.read(buffer, position + buffer.position() - at) > 0) {}
            return buffer.position() - at;
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }
}
