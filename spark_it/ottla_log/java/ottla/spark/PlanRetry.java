package ottla.spark;

import java.io.UncheckedIOException;
import java.nio.file.NoSuchFileException;
import java.util.function.Supplier;

/** Repetition of a plan during which the broker deleted or replaced a segment. */
final class PlanRetry {
    private static final int MAX_ATTEMPTS = 20;

    private PlanRetry() {}

    static <T> T run(Supplier<T> plan) {
        for (int number = 1; ; number++) {
            try {
                return plan.get();
            } catch (UncheckedIOException error) {
                if (!(error.getCause() instanceof NoSuchFileException) || number == MAX_ATTEMPTS) {
                    throw error;
                }
            }
        }
    }
}
