package ottla.spark;

/** Error of the source: options that do not fit, missing data, or a damaged batch. */
public final class LogSourceException extends RuntimeException {
    private static final long serialVersionUID = 1;

    LogSourceException(String message) {
        super(message);
    }

    LogSourceException(String message, Throwable cause) {
        super(message, cause);
    }
}
