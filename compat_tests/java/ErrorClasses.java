import org.apache.kafka.common.protocol.Errors;

/** Prints a line for each error code of Kafka that has an exception: the code, and the class of the exception. */
public class ErrorClasses {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            if (error.exception() != null) {
                System.out.println(error.code() + " " + error.exception().getClass().getName());
            }
        }
    }
}
