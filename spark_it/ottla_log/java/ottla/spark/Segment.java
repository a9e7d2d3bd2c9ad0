package ottla.spark;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * File of a segment.
 *
 * @param baseOffset the offset in its name
 * @param file the path of the {@code .log} file, or of the {@code .log.swap} file that is about to replace it
 */
record Segment(long baseOffset, Path file) {
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
                    Segment segment = new Segment(baseOffset, file);
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

    /** Return the path of another file of the segment: {@code index}, {@code timeindex}, {@code txnindex}. */
    Path sibling(String suffix) {
        return file.resolveSibling(file.getFileName().toString().replaceFirst("\\.log", "." + suffix));
    }
}
