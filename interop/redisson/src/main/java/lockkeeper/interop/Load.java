package lockkeeper.interop;

import java.io.BufferedReader;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * What processes of both sides do at the same time. They print {@code ready}, and begin when a line comes.
 * The Rust side is {@code interop-taker}, which does the same.
 */
final class Load {
    private Load() {
    }

    /** Adds one to a counter again and again: reads, pauses, writes. Only a lock keeps that from losing any. */
    static void add(List<RedissonClient> clients, Options options, BufferedReader input) throws Exception {
        RLock lock = Verbs.lockOf(clients, options.get("kind", "lock"), options.need("name"));
        RBucket<String> counter = clients.get(0).getBucket(options.need("counter"), StringCodec.INSTANCE);
        long rounds = options.number("rounds", 0);
        long pause = options.number("pause", 0);
        ready(input);
        for (long round = 0; round < rounds; round++) {
            lock.lock();
            try {
                String before = counter.get();
                if (pause > 0) {
                    Thread.sleep(pause);
                }
                long value = before == null ? 0 : Long.parseLong(before);
                counter.set(Long.toString(value + 1));
            } finally {
                lock.unlock();
            }
        }
        Peer.OUT.println("added " + rounds);
    }

    /** Takes one lock again and again for a while, and tells how often it had it. */
    static void contend(RedissonClient client, Options options, BufferedReader input) throws Exception {
        String name = options.need("name");
        long hold = options.number("hold", 0);
        // The compiler of the virtual machine wants a while before it is what a service would see.
        take(client.getLock(name + ":warm:" + client.getId()), 1500, 0);
        ready(input);
        AtomicLong turns = new AtomicLong();
        Thread[] threads = new Thread[(int) options.number("threads", 1)];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> turns.addAndGet(take(client.getLock(name), options.number("for", 0), hold)));
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Peer.OUT.println("turns " + turns.get());
    }

    private static long take(RLock lock, long millis, long hold) {
        long end = System.nanoTime() + millis * 1_000_000;
        long turns = 0;
        while (System.nanoTime() < end) {
            lock.lock();
            try {
                turns++;
                if (hold > 0) {
                    Thread.sleep(hold);
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            } finally {
                lock.unlock();
            }
        }
        return turns;
    }

    private static void ready(BufferedReader input) throws Exception {
        Peer.OUT.println("ready");
        if (input.readLine() == null) {
            throw new IllegalStateException("the input ended before the start");
        }
    }
}
