import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Locks with Redisson or Curator, the variant. See ../../../../README.md. */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What is measured. */
    private interface Library {
        String name();

        Class<?> main();

        Lock lock(String name);
    }

    /** One name, as one thread uses it. */
    private interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    private record RedissonLibrary(RedissonClient client) implements Library {
        static Library connect(String url) {
            Config config = new Config();
            config.useSingleServer().setAddress(url.replaceAll("/0$", ""));
            return new RedissonLibrary(Redisson.create(config));
        }

        public String name() {
            return "Redisson";
        }

        public Class<?> main() {
            return Redisson.class;
        }

        public Lock lock(String name) {
            RLock lock = client.getLock(name);
            return new Lock() {
                // Its default: renewed by its watchdog.
                public void acquire() {
                    lock.lock();
                }

                public void release() {
                    lock.unlock();
                }
            };
        }
    }

    private record CuratorLibrary(CuratorFramework client) implements Library {
        static Library connect(String url) throws InterruptedException {
            // Curator has no default for what is tried again; this is what its examples have.
            ExponentialBackoffRetry retries = new ExponentialBackoffRetry(1000, 3);
            CuratorFramework client = CuratorFrameworkFactory.newClient(url.replace("zk://", ""), retries);
            client.start();
            client.blockUntilConnected();
            return new CuratorLibrary(client);
        }

        public String name() {
            return "Curator";
        }

        public Class<?> main() {
            return InterProcessMutex.class;
        }

        public Lock lock(String name) {
            InterProcessMutex mutex = new InterProcessMutex(client, "/" + name);
            return new Lock() {
                public void acquire() throws Exception {
                    mutex.acquire();
                }

                public void release() throws Exception {
                    mutex.release();
                }
            };
        }
    }

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
    private static Answer repeat(Lock lock, JsonNode order) throws InterruptedException {
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
                lock.acquire();
            } catch (Exception failure) {
                answer.failed(failure);
                continue;
            }
            long acquired = System.nanoTime();
            sleep(hold);
            long releasing = System.nanoTime();
            try {
                lock.release();
            } catch (Exception failure) {
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

    private static Answer measure(Library library, JsonNode order) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        List<Answer> parts = new ArrayList<>();
        for (JsonNode name : order.get("names")) {
            Lock lock = library.lock(name.asText());
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
        Library library = switch (arguments[1]) {
            case "redisson" -> RedissonLibrary.connect(arguments[0]);
            case "curator" -> CuratorLibrary.connect(arguments[0]);
            default -> throw new IllegalArgumentException(arguments[1] + " is no variant");
        };
        String version = library.main().getPackage().getImplementationVersion();
        String ready = library.name() + " " + version + ", Java " + System.getProperty("java.version");
        System.out.println(JSON.writeValueAsString(Map.of("ready", ready)));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(measure(library, JSON.readTree(line))));
        }
        // Threads of the library would go on.
        System.exit(0);
    }
}
