//! What a server says about itself when we connect, and what of it endangers locks.

use crate::{Error, SETUP_TARGET};

use super::fault::{refused, unavailable};

/// RESP3 came with 6.0; scripts that read the clock and write are replicated by their effects since 5.0.
const OLDEST: (u32, u32) = (6, 2);

/// What the server said. `None`: it did not, for instance because the ACL hides it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct ServerInfo {
    pub version: Option<String>,
    pub role: Option<String>,
    pub mode: Option<String>,
    /// Which keys it removes when memory runs out, if there is a limit at all.
    pub evicts: Option<String>,
    pub keeps_a_log: Option<bool>,
    /// Differs between servers, and after every start.
    pub run_id: Option<String>,
    /// How many replicas follow it.
    pub replicas: Option<u32>,
    /// For how many seconds it is up. 0 if its clock shows an earlier time than at its start.
    pub uptime: Option<u64>,
    keyspaces: Vec<(u32, Keyspace)>,
}

/// How full a database is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Keyspace {
    pub keys: u64,
    /// How many of them have an end.
    pub expires: u64,
}

impl Keyspace {
    /// Reads a line such as `db0:keys=3,expires=1,avg_ttl=0`, and which database it is about.
    fn read(line: &str) -> Option<(u32, Keyspace)> {
        let (database, numbers) = line.strip_prefix("db")?.split_once(':')?;
        let number = |name: &str| {
            let mut numbers = numbers.split(',').filter_map(|part| part.split_once('='));
            numbers.find(|(key, _)| *key == name)?.1.trim().parse().ok()
        };
        let space = Keyspace {
            keys: number("keys")?,
            expires: number("expires")?,
        };
        Some((database.parse().ok()?, space))
    }
}

impl ServerInfo {
    /// Reads the answer to INFO.
    pub fn read(text: &str) -> ServerInfo {
        let field = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            let mut found = lines.filter(|(key, _)| *key == name);
            found.next().map(|(_, value)| value.trim().to_owned())
        };
        let limited = field("maxmemory").is_some_and(|limit| limit != "0");
        ServerInfo {
            version: field("redis_version"),
            role: field("role"),
            // Valkey has its own word for it.
            mode: field("redis_mode").or_else(|| field("server_mode")),
            evicts: field("maxmemory_policy").filter(|policy| limited && policy != "noeviction"),
            keeps_a_log: field("aof_enabled").map(|enabled| enabled == "1"),
            run_id: field("run_id"),
            replicas: field("connected_slaves").and_then(|count| count.parse().ok()),
            uptime: field("uptime_in_seconds")
                .and_then(|seconds| seconds.parse::<i64>().ok())
                .map(|seconds| seconds.max(0).unsigned_abs()),
            keyspaces: text.lines().filter_map(Keyspace::read).collect(),
        }
    }

    /// How full a database is. One that is empty is not told of.
    pub fn keyspace(&self, database: u32) -> Option<Keyspace> {
        let mut spaces = self.keyspaces.iter();
        spaces
            .find(|(number, _)| *number == database)
            .map(|found| found.1)
    }

    /// Whether enough replicas follow to confirm anything. Later they may come and go; then requests tell.
    pub fn judge_replicas(&self, wanted: u32, first: bool) -> Result<(), Error> {
        match self.replicas {
            Some(found) if found < wanted && first => Err(unavailable(format!(
                "{found} replicas follow the server, and replicas={wanted} asks for {wanted}"
            ))),
            Some(found) if found < wanted => {
                tracing::warn!(
                    target: SETUP_TARGET,
                    found,
                    wanted,
                    "too few replicas follow the server; it can grant nothing"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a server that cannot keep locks, and warns of one that may lose them.
    pub fn judge(&self, address: &dyn std::fmt::Display, cluster: bool) -> Result<(), Error> {
        if let Some(version) = &self.version {
            let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
            let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            if found < OLDEST {
                return Err(refused(format!(
                    "the server is Redis {version}, and locks need {}.{} or newer",
                    OLDEST.0, OLDEST.1
                )));
            }
        }
        match self.mode.as_deref() {
            Some("cluster") if !cluster => {
                return Err(refused(format!(
                    "the server is part of a cluster; write redis+cluster://{address}"
                )));
            }
            Some("standalone") if cluster => return Err(not_a_cluster(address)),
            Some("sentinel") => {
                return Err(refused(
                    "this is a Sentinel, not a server; write redis+sentinel://HOST:PORT/SERVICE to have the service's \
                     master found"
                        .into(),
                ));
            }
            _ => {}
        }
        if self.role.as_deref().is_some_and(|role| role != "master") {
            // It may be promoted, or the URL's name may lead to the master later.
            return Err(unavailable(
                "the server is a replica, which cannot take locks; connect to its master".into(),
            ));
        }
        if let Some(policy) = &self.evicts {
            tracing::warn!(
                target: SETUP_TARGET,
                server = %address,
                %policy,
                "the server removes keys when its memory is full, and with them locks that are held; set \
                 `maxmemory-policy noeviction`"
            );
        }
        if self.version.is_none() {
            tracing::warn!(
                target: SETUP_TARGET,
                server = %address,
                "INFO is not allowed: whether the server is a master, new enough and never evicts is unknown"
            );
        }
        if self.keeps_a_log == Some(false) {
            tracing::debug!(server = %address, "without appendonly, a restart of the server may lose held locks");
        }
        Ok(())
    }
}

/// A server that is not what its URL says.
pub(super) fn not_a_cluster(address: &dyn std::fmt::Display) -> Error {
    refused(format!(
        "{address} is a server by itself and no part of a cluster; write redis://{address}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n# Memory\r\nmaxmemory:0\r\n\
        maxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n# Replication\r\nrole:master\r\n";

    #[test]
    fn an_ordinary_master_passes() {
        let info = ServerInfo::read(GOOD);
        assert_eq!(info.version.as_deref(), Some("7.0.15"));
        assert_eq!(info.evicts, None);
        assert_eq!(info.keeps_a_log, Some(true));
        info.judge(&"here", false).expect("it is good");
        // What is hidden is not held against it.
        ServerInfo::read("").judge(&"here", false).expect("unknown");
    }

    #[test]
    fn what_cannot_keep_locks_is_refused() {
        for (from, to, word) in [
            ("7.0.15", "6.0.16", "6.0.16"),
            ("7.0.15", "5.0.14", "6.2"),
            ("role:master", "role:slave", "replica"),
            ("standalone", "cluster", "redis+cluster://here"),
            ("standalone", "sentinel", "Sentinel"),
        ] {
            let info = ServerInfo::read(&GOOD.replace(from, to));
            let text = info.judge(&"here", false).expect_err(to).to_string();
            assert!(text.contains(word), "{text}");
        }
        let alone = ServerInfo::read(GOOD).judge(&"here", true);
        let text = alone.expect_err("alone").to_string();
        assert!(text.contains("redis://here"), "{text}");
        ServerInfo::read(&GOOD.replace("standalone", "cluster"))
            .judge(&"here", true)
            .expect("a part of a cluster");
        ServerInfo::read(&GOOD.replace("7.0.15", "10.1.0"))
            .judge(&"here", false)
            .expect("new");
        let valkey = GOOD.replace("redis_mode:standalone", "server_mode:sentinel");
        let text = ServerInfo::read(&valkey).judge(&"here", false);
        let text = text.expect_err("a Sentinel").to_string();
        assert!(text.contains("redis+sentinel:"), "{text}");
    }

    #[test]
    fn too_few_replicas_are_told_at_first() {
        let info = ServerInfo::read(&format!("{GOOD}connected_slaves:1\r\n"));
        info.judge_replicas(1, true).expect("enough");
        let text = info.judge_replicas(2, true).expect_err("few").to_string();
        assert!(text.contains("replicas=2"), "{text}");
        info.judge_replicas(2, false).expect("they may come");
        ServerInfo::default()
            .judge_replicas(2, true)
            .expect("unknown");
    }

    #[test]
    fn a_clock_that_was_set_back_makes_a_server_young() {
        let uptime = |line: &str| ServerInfo::read(&format!("{GOOD}{line}\r\n")).uptime;
        assert_eq!(uptime("uptime_in_seconds:61"), Some(61));
        assert_eq!(uptime("uptime_in_seconds:-116"), Some(0));
        assert_eq!(uptime("uptime_in_seconds:soon"), None);
        assert_eq!(uptime(""), None);
    }

    #[test]
    fn the_database_in_use_is_the_one_that_counts() {
        let info = format!(
            "{GOOD}# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=0\r\ndb12:keys=70,expires=0,avg_ttl=0,subexpiry=0\r\n\
             db3:keys=many\r\n"
        );
        let info = ServerInfo::read(&info);
        let space = |keys, expires| Some(Keyspace { keys, expires });
        assert_eq!(info.keyspace(0), space(3, 1));
        assert_eq!(info.keyspace(12), space(70, 0));
        assert_eq!((info.keyspace(1), info.keyspace(3)), (None, None));
    }

    #[test]
    fn eviction_counts_only_with_a_limit() {
        let evicting = GOOD.replace("noeviction", "allkeys-lru");
        assert_eq!(ServerInfo::read(&evicting).evicts, None);
        let limited = evicting.replace("maxmemory:0", "maxmemory:1048576");
        assert_eq!(
            ServerInfo::read(&limited).evicts.as_deref(),
            Some("allkeys-lru")
        );
    }
}
