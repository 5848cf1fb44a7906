package lockkeeper.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.api.RedissonClient;

/**
 * A Redisson client that a test drives.
 *
 * <pre>
 * peer serve   --address redis://HOST:PORT[,...] [--mode single|sentinel|cluster|redlock] [--service NAME] [--watchdog MS]
 * peer add     ... --kind lock|fair|write|red --name N --counter KEY --rounds N [--pause MS]
 * peer contend ... --name N --for MS --hold MS [--threads N]
 * </pre>
 *
 * {@code serve} reads one command a line: {@code {"id":1,"worker":"a","do":"lock","kind":"lock","name":"x"}}. Each
 * worker is a thread of its own, which is what Redisson knows owners by, so a worker that waits answers later; the
 * answer, {@code {"id":1,"value":...}} or {@code {"id":1,"error":"..."}}, has the command's id. {@link Verbs} has
 * what can be done. The end of input ends the process without a word to the server, like {@code kill -9}.
 */
public final class Peer {
    static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, ExecutorService> workers = new HashMap<>();
    private final Verbs verbs;

    private Peer(List<RedissonClient> clients) {
        verbs = new Verbs(clients);
    }

    public static void main(String[] arguments) throws Exception {
        String command = arguments.length == 0 ? "" : arguments[0];
        Options options = new Options(arguments, 1);
        List<RedissonClient> clients = Client.connect(options);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        switch (command) {
            case "serve" -> new Peer(clients).serve(input);
            case "add" -> Load.add(clients, options, input);
            case "contend" -> Load.contend(clients.get(0), options, input);
            default -> throw new IllegalArgumentException(command + " is none of serve, add, contend");
        }
        // Clients and workers have threads that would go on.
        Runtime.getRuntime().halt(0);
    }

    private void serve(BufferedReader input) throws Exception {
        OUT.println("{\"ready\":true}");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            String worker = command.path("worker").asText("main");
            workers.computeIfAbsent(worker, name -> Executors.newSingleThreadExecutor())
                    .execute(() -> OUT.println(answer(command)));
        }
    }

    private ObjectNode answer(JsonNode command) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", command.get("id"));
        try {
            answer.set("value", JSON.valueToTree(verbs.run(command)));
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        return answer;
    }
}
