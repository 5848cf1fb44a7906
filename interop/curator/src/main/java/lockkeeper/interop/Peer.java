package lockkeeper.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A Curator client that does what it is told, a line at a time: {@code ID VERB OWNER ARGUMENTS}. Each owner has a thread,
 * since Curator's locks belong to threads. A path may be written with {@code %XX}, as in an address. Every line is answered by {@code ID ok VALUE} or {@code ID error REASON}.
 */
public final class Peer {
  private static final Map<String, ExecutorService> OWNERS = new ConcurrentHashMap<>();
  private static final Map<String, InterProcessLock> LOCKS = new ConcurrentHashMap<>();
  private static final Map<String, InterProcessReadWriteLock> PAIRS = new ConcurrentHashMap<>();
  private static final Map<String, Collection<Lease>> LEASES = new ConcurrentHashMap<>();

  private Peer() {}

  public static void main(String[] arguments) throws Exception {
    CuratorFramework client =
        CuratorFrameworkFactory.newClient(arguments[0], 20_000, 15_000, new ExponentialBackoffRetry(100, 5));
    client.start();
    client.blockUntilConnected();
    answer("0 ok ready");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      OWNERS.computeIfAbsent(words[2], name -> Executors.newSingleThreadExecutor()).submit(() -> run(client, words));
    }
    client.close();
    System.exit(0);
  }

  private static void run(CuratorFramework client, String[] words) {
    try {
      answer(words[0] + " ok " + act(client, words));
    } catch (Exception error) {
      answer(words[0] + " error " + error);
    }
  }

  private static String act(CuratorFramework client, String[] words) throws Exception {
    String owner = words[2];
    if (words.length > 3) {
      words[3] = URLDecoder.decode(words[3].replace("+", "%2B"), StandardCharsets.UTF_8);
    }
    switch (words[1]) {
      case "lock": {
        InterProcessLock lock = lock(client, owner, words[3], words[4]);
        boolean held = lock.acquire(Long.parseLong(words[5]), TimeUnit.MILLISECONDS);
        if (held) {
          LOCKS.put(owner + " " + words[4], lock);
        }
        return Boolean.toString(held);
      }
      case "unlock":
        LOCKS.remove(owner + " " + words[3]).release();
        return "";
      case "permits": {
        InterProcessSemaphoreV2 semaphore =
            new InterProcessSemaphoreV2(client, words[3], Integer.parseInt(words[4]));
        Collection<Lease> leases =
            semaphore.acquire(Integer.parseInt(words[5]), Long.parseLong(words[6]), TimeUnit.MILLISECONDS);
        if (leases == null) {
          return "false";
        }
        LEASES.computeIfAbsent(owner, name -> new ArrayList<>()).addAll(leases);
        return "true";
      }
      case "return":
        LEASES.remove(owner).forEach(lease -> {
          try {
            lease.close();
          } catch (Exception error) {
            throw new IllegalStateException(error);
          }
        });
        return "";
      case "participants": {
        InterProcessMutex mutex = new InterProcessMutex(client, words[3]);
        return Integer.toString(mutex.getParticipantNodes().size());
      }
      case "children": {
        List<String> children = client.getChildren().forPath(words[3]);
        return String.join(",", children);
      }
      case "count": {
        try (SharedCount count = new SharedCount(client, words[3], 0)) {
          count.start();
          return Integer.toString(count.getCount());
        }
      }
      case "create":
        client.create().forPath(words[3]);
        return "";
      case "add":
        add(lock(client, owner, words[3], words[6]), Path.of(words[4]), Integer.parseInt(words[5]));
        return "";
      default:
        throw new IllegalArgumentException(words[1]);
    }
  }

  private static InterProcessLock lock(CuratorFramework client, String owner, String path, String mode) {
    if (mode.equals("mutex")) {
      return new InterProcessMutex(client, path);
    }
    // A writer that takes the read lock has to take it from the same object.
    InterProcessReadWriteLock pair =
        PAIRS.computeIfAbsent(owner + " " + path, name -> new InterProcessReadWriteLock(client, path));
    return mode.equals("read") ? pair.readLock() : pair.writeLock();
  }

  /** Adds one to the number in a file, so many times, each under the lock. */
  private static void add(InterProcessLock lock, Path file, int rounds) throws Exception {
    for (int round = 0; round < rounds; round++) {
      lock.acquire();
      try {
        long number = Long.parseLong(Files.readString(file).trim());
        Thread.sleep(1);
        Files.writeString(file, Long.toString(number + 1));
      } finally {
        lock.release();
      }
    }
  }

  private static synchronized void answer(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
