package lockkeeper.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/** What a command can ask of Redisson. Times are in milliseconds; a lease that is left out is a renewed one. */
final class Verbs {
    /** What Redisson takes for "renewed by the watchdog" where a method needs a lease. */
    private static final long RENEWED = -1;

    /** One for each node in mode redlock. */
    private final List<RedissonClient> clients;
    private final RedissonClient client;

    Verbs(List<RedissonClient> clients) {
        this.clients = clients;
        this.client = clients.get(0);
    }

    /** The answer to a command; null if there is nothing to tell. */
    Object run(JsonNode command) throws Exception {
        String verb = need(command, "do").asText();
        String kind = command.path("kind").asText("lock");
        return switch (kind) {
            case "permits" -> permits(verb, command);
            case "latch" -> latch(verb, command);
            case "fenced" -> fenced(verb, command);
            case "multi" -> lock(verb, multi(command), command);
            default -> lock(verb, lockOf(clients, kind, name(command)), command);
        };
    }

    static RLock lockOf(List<RedissonClient> clients, String kind, String name) {
        RedissonClient client = clients.get(0);
        return switch (kind) {
            case "red" -> red(clients, name);
            case "lock" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "spin" -> client.getSpinLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            default -> throw new IllegalArgumentException(kind + " is no kind of lock");
        };
    }

    /** Deprecated by Redisson, and still what its users have over independent masters. */
    @SuppressWarnings("deprecation")
    private static RLock red(List<RedissonClient> clients, String name) {
        RLock[] locks = clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new);
        return new RedissonRedLock(locks);
    }

    private RLock multi(JsonNode command) {
        List<RLock> locks = new ArrayList<>();
        need(command, "names").forEach(name -> locks.add(client.getLock(name.asText())));
        return client.getMultiLock(locks.toArray(new RLock[0]));
    }

    private static Object lock(String verb, RLock lock, JsonNode command) throws Exception {
        switch (verb) {
            case "lock" -> {
                if (command.has("lease")) {
                    lock.lock(lease(command), MILLISECONDS);
                } else {
                    lock.lock();
                }
                return null;
            }
            case "tryLock" -> {
                if (command.has("wait")) {
                    return lock.tryLock(need(command, "wait").asLong(), lease(command), MILLISECONDS);
                }
                return lock.tryLock();
            }
            case "unlock" -> {
                lock.unlock();
                return null;
            }
            case "forceUnlock" -> {
                return lock.forceUnlock();
            }
            case "isLocked" -> {
                return lock.isLocked();
            }
            case "isHeld" -> {
                return lock.isHeldByCurrentThread();
            }
            case "holdCount" -> {
                return lock.getHoldCount();
            }
            case "remaining" -> {
                return lock.remainTimeToLive();
            }
            default -> throw new IllegalArgumentException(verb + " is nothing that a lock does");
        }
    }

    private Object fenced(String verb, JsonNode command) throws Exception {
        var lock = client.getFencedLock(name(command));
        return switch (verb) {
            case "lockAndGetToken" -> lock.lockAndGetToken();
            case "tryLockAndGetToken" ->
                lock.tryLockAndGetToken(need(command, "wait").asLong(), lease(command), MILLISECONDS);
            case "getToken" -> lock.getToken();
            default -> lock(verb, lock, command);
        };
    }

    private Object permits(String verb, JsonNode command) throws Exception {
        RPermitExpirableSemaphore permits = client.getPermitExpirableSemaphore(name(command));
        int count = command.path("count").asInt(1);
        switch (verb) {
            case "trySetPermits" -> {
                return permits.trySetPermits(count);
            }
            case "acquire" -> {
                return command.has("lease")
                        ? permits.acquire(count, lease(command), MILLISECONDS)
                        : permits.acquire(count);
            }
            case "tryAcquire" -> {
                return permits.tryAcquire(count, command.path("wait").asLong(0), lease(command), MILLISECONDS);
            }
            case "release" -> {
                List<String> ids = new ArrayList<>();
                need(command, "ids").forEach(id -> ids.add(id.asText()));
                permits.release(ids);
                return null;
            }
            case "availablePermits" -> {
                return permits.availablePermits();
            }
            case "getPermits" -> {
                return permits.getPermits();
            }
            case "acquiredPermits" -> {
                return permits.acquiredPermits();
            }
            default -> throw new IllegalArgumentException(verb + " is nothing that permits do");
        }
    }

    private Object latch(String verb, JsonNode command) throws Exception {
        RCountDownLatch latch = client.getCountDownLatch(name(command));
        switch (verb) {
            case "trySetCount" -> {
                return latch.trySetCount(need(command, "count").asLong());
            }
            case "countDown" -> {
                latch.countDown();
                return null;
            }
            case "getCount" -> {
                return latch.getCount();
            }
            case "await" -> {
                if (command.has("wait")) {
                    return latch.await(need(command, "wait").asLong(), MILLISECONDS);
                }
                latch.await();
                return true;
            }
            default -> throw new IllegalArgumentException(verb + " is nothing that a latch does");
        }
    }

    private static JsonNode need(JsonNode command, String field) {
        JsonNode value = command.get(field);
        if (value == null) {
            throw new IllegalArgumentException("the command has no " + field + ": " + command);
        }
        return value;
    }

    private static String name(JsonNode command) {
        return need(command, "name").asText();
    }

    private static long lease(JsonNode command) {
        return command.path("lease").asLong(RENEWED);
    }
}
