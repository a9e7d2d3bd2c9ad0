package ottla.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;

/** File in a checkpoint with the offsets at which the query began: a restarted query begins at the same ones. */
final class InitialOffsets {
    private static final String NAME = "initial-offsets";

    private InitialOffsets() {}

    static LogOffset readOrWrite(String checkpointLocation, Supplier<LogOffset> offsets) {
        Path file = new Path(checkpointLocation, NAME);
        try {
            FileSystem files = file.getFileSystem(SparkSession.active().sparkContext().hadoopConfiguration());
            if (files.exists(file)) {
                try (var stream = files.open(file)) {
                    return LogOffset.parse(new String(stream.readAllBytes(), StandardCharsets.UTF_8));
                }
            }
            LogOffset made = offsets.get();
            Path unfinished = file.suffix(".tmp");
            try (var stream = files.create(unfinished, true)) {
                stream.write(made.json().getBytes(StandardCharsets.UTF_8));
            }
            if (!files.rename(unfinished, file)) {
                throw new IOException("Cannot rename " + unfinished + " to " + file);
            }
            return made;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
