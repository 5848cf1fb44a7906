import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Locks with Redisson. See ../../../../README.md. */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** The answer to one order, or the part of it that one task has. Its fields are the contract's. */
    public static final class Answer {
        public List<Long> pairs = new ArrayList<>();
        public long all;
        public Map<Integer, Long> waits = new TreeMap<>();
        public long held_ns;
        public List<long[]> notes = new ArrayList<>();
        public long errors;
        public String error;

        void failed(Exception failure) {
            errors++;
            if (error == null) {
                error = failure.toString();
            }
        }

        void add(Answer other) {
            pairs.addAll(other.pairs);
            all += other.all;
            other.waits.forEach((bucket, count) -> waits.merge(bucket, count, Long::sum));
            held_ns += other.held_ns;
            notes.addAll(other.notes);
            errors += other.errors;
            error = error == null ? other.error : error;
        }
    }

    private static void sleep(long nanos) throws InterruptedException {
        if (nanos > 0) {
            Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
        }
    }

    // On Linux System.nanoTime() is CLOCK_MONOTONIC.
    private static Answer repeat(RLock lock, JsonNode order) throws InterruptedException {
        long end = order.get("end_ns").asLong();
        long hold = order.get("hold_us").asLong() * 1000;
        boolean notes = order.get("notes").asBoolean();
        Answer answer = new Answer();
        long pairs = 0;
        sleep(order.get("start_ns").asLong() - System.nanoTime());
        for (;;) {
            long asked = System.nanoTime();
            if (asked >= end) {
                break;
            }
            try {
                // Its default: renewed by its watchdog.
                lock.lock();
            } catch (RuntimeException failure) {
                answer.failed(failure);
                continue;
            }
            long acquired = System.nanoTime();
            sleep(hold);
            long releasing = System.nanoTime();
            try {
                lock.unlock();
            } catch (RuntimeException failure) {
                answer.failed(failure);
            }
            int bucket = (int) (Math.log(Math.max(acquired - asked, 1)) / Math.log(2) * 16);
            answer.waits.merge(bucket, 1L, Long::sum);
            answer.all++;
            answer.held_ns += releasing - acquired;
            if (System.nanoTime() < end) {
                pairs++;
            }
            if (notes) {
                answer.notes.add(new long[] {asked, acquired, releasing});
            }
        }
        answer.pairs.add(pairs);
        return answer;
    }

    private static Answer measure(RedissonClient client, JsonNode order) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        List<Answer> parts = new ArrayList<>();
        for (JsonNode name : order.get("names")) {
            RLock lock = client.getLock(name.asText());
            Answer part = new Answer();
            parts.add(part);
            threads.add(new Thread(() -> {
                try {
                    part.add(repeat(lock, order));
                } catch (InterruptedException failure) {
                    part.failed(failure);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        Answer all = new Answer();
        for (int i = 0; i < threads.size(); i++) {
            threads.get(i).join();
            all.add(parts.get(i));
        }
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(arguments[0].replaceAll("/0$", ""));
        RedissonClient client = Redisson.create(config);
        String version = Redisson.class.getPackage().getImplementationVersion();
        String ready = "Redisson " + version + ", Java " + System.getProperty("java.version");
        System.out.println(JSON.writeValueAsString(Map.of("ready", ready)));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(measure(client, JSON.readTree(line))));
        }
        client.shutdown();
    }
}
