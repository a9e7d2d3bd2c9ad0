package ottla.spark;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.Serializable;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.SerializableConfiguration;

/** Remote store of tiered storage, read through the file system of Hadoop that its URL names. */
final class RemoteStore implements Serializable {
    private static final long serialVersionUID = 1;

    final String url;
    private final SerializableConfiguration configuration;

    /** Create a store with the Hadoop configuration of the session. */
    RemoteStore(String url) {
        this.url = new Path(url).toUri().getPath().isEmpty() ? url + "/" : url;
        configuration = new SerializableConfiguration(
                SparkSession.active().sparkContext().hadoopConfiguration());
    }

    private FileSystem fileSystem() throws IOException {
        FileSystem files = new Path(url).getFileSystem(configuration.value());
        // Objects in a directory have no .crc files of Hadoop, which its local file system would look for.
        return files instanceof LocalFileSystem local ? local.getRawFileSystem() : files;
    }

    private Path path(String name) {
        return name.isEmpty() ? new Path(url) : new Path(url, name);
    }

    /** Raise an error if the directory, bucket or prefix of the URL does not exist. */
    void checkExists() throws IOException {
        if (!fileSystem().exists(path(""))) {
            throw new LogSourceException("No remote store: " + url);
        }
    }

    /** Return the files and directories in a directory; none if it does not exist. */
    List<FileStatus> list(String directory) throws IOException {
        List<FileStatus> out = new ArrayList<>();
        try {
            RemoteIterator<FileStatus> found = fileSystem().listStatusIterator(path(directory));
            while (found.hasNext()) {
                out.add(found.next());
            }
        } catch (FileNotFoundException missing) {
            return out;
        }
        return out;
    }

    /** Open an object for reads of ranges; its length saves a request for it. */
    FSDataInputStream open(String name, long objectBytes) throws IOException {
        try {
            return fileSystem()
                    .openFile(path(name))
                    .opt("fs.option.openfile.read.policy", "random")
                    .optLong("fs.option.openfile.length", objectBytes)
                    .build()
                    .get();
        } catch (FileNotFoundException missing) {
            throw new NoSuchFileException(path(name).toString());
        } catch (ExecutionException error) {
            throw asIOException(name, error);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException(name);
        }
    }

    private IOException asIOException(String name, ExecutionException error) {
        if (error.getCause() instanceof FileNotFoundException) {
            return new NoSuchFileException(path(name).toString());
        }
        return error.getCause() instanceof IOException cause ? cause : new IOException(error.getCause());
    }

    /** Fill a part of an array with a range of an open object. */
    void read(FSDataInputStream stream, String name, long position, byte[] target, int length) throws IOException {
        try {
            stream.readFully(position, target, 0, length);
        } catch (FileNotFoundException missing) {
            throw new NoSuchFileException(path(name).toString());
        }
    }

    /** Return a range of an object. */
    byte[] readRange(String name, long objectBytes, long position, int length) throws IOException {
        byte[] out = new byte[length];
        try (FSDataInputStream stream = open(name, objectBytes)) {
            read(stream, name, position, out, length);
        }
        return out;
    }

    /** Return the whole name of an object, for messages. */
    String pathOf(String name) {
        return path(name).toString();
    }
}
