package lockkeeper.interop;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Connects Redisson to a single server, to Sentinels or to a cluster. */
final class Client {
    private Client() {
    }

    static RedissonClient connect(Options options) {
        Config config = new Config();
        // Small: many of these processes share a machine with the servers that they test.
        config.setThreads(4).setNettyThreads(4);
        config.setLockWatchdogTimeout(options.number("watchdog", config.getLockWatchdogTimeout()));
        String[] addresses = options.need("address").split(",");
        String mode = options.get("mode", "single");
        switch (mode) {
            case "single" -> config.useSingleServer()
                    .setAddress(addresses[0])
                    .setConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionMinimumIdleSize(1);
            case "sentinel" -> config.useSentinelServers()
                    .setMasterName(options.need("service"))
                    .addSentinelAddress(addresses)
                    .setMasterConnectionMinimumIdleSize(1)
                    .setSlaveConnectionMinimumIdleSize(1);
            case "cluster" -> config.useClusterServers()
                    .addNodeAddress(addresses)
                    .setMasterConnectionMinimumIdleSize(1)
                    .setSlaveConnectionMinimumIdleSize(1);
            default -> throw new IllegalArgumentException(
                    "--mode " + mode + " is none of single, sentinel, cluster");
        }
        return Redisson.create(config);
    }
}
