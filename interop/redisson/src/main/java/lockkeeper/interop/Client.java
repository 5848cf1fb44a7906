package lockkeeper.interop;

import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Connects Redisson to a single server, to Sentinels or to a cluster; or to several servers, each on its own. */
final class Client {
    private Client() {
    }

    /** One client, or in mode redlock one for each address. */
    static List<RedissonClient> connect(Options options) {
        String[] addresses = options.need("address").split(",");
        String mode = options.get("mode", "single");
        if (!mode.equals("redlock")) {
            return List.of(connect(options, mode, addresses));
        }
        List<RedissonClient> nodes = new ArrayList<>();
        for (String address : addresses) {
            nodes.add(connect(options, "single", new String[] {address}));
        }
        return nodes;
    }

    private static RedissonClient connect(Options options, String mode, String[] addresses) {
        Config config = new Config();
        // Small: many of these processes share a machine with the servers that they test.
        config.setThreads(4).setNettyThreads(4);
        config.setLockWatchdogTimeout(options.number("watchdog", config.getLockWatchdogTimeout()));
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
                    "--mode " + mode + " is none of single, sentinel, cluster, redlock");
        }
        return Redisson.create(config);
    }
}
