package lockkeeper.interop;

import java.util.HashMap;
import java.util.Map;

/** {@code --name value} pairs. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments, int from) {
        for (int i = from; i < arguments.length; i += 2) {
            if (!arguments[i].startsWith("--") || i + 1 == arguments.length) {
                throw new IllegalArgumentException(arguments[i] + " is no --option with a value");
            }
            values.put(arguments[i].substring(2), arguments[i + 1]);
        }
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    String need(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    long number(String name, long otherwise) {
        String value = values.get(name);
        return value == null ? otherwise : Long.parseLong(value);
    }
}
