//! A slot of a cluster on its way from one master to another.

use super::redis_cluster::RedisCluster;

impl RedisCluster {
    /// Begins to move the slot of a key to another master: from now on keys may be moved one by one.
    pub fn begin_migration(&self, key: &str) -> Migration<'_> {
        let slot = self.slot_of(key);
        let from = self.master_of(key);
        let others = self.masters();
        let to = *others.iter().find(|port| **port != from).expect("another");
        let id = |port| self.with(port, |node| node.id.clone());
        let (from_id, to_id, text) = (id(from), id(to), slot.to_string());
        self.with(to, |node| {
            node.cluster(&["SETSLOT", &text, "IMPORTING", &from_id]);
        });
        self.with(from, |node| {
            node.cluster(&["SETSLOT", &text, "MIGRATING", &to_id]);
        });
        Migration {
            cluster: self,
            slot: text,
            from,
            to,
            to_id,
        }
    }

    /// Moves the slot of a key to another master, whose port it answers.
    pub fn migrate_slot_of(&self, key: &str) -> u16 {
        let migration = self.begin_migration(key);
        migration.move_keys(usize::MAX);
        migration.finish()
    }
}

/// A slot on its way.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: u16,
    to: u16,
    to_id: String,
}

impl Migration<'_> {
    /// Moves at most this many keys, and answers how many that were.
    pub fn move_keys(&self, most: usize) -> usize {
        let most = most.min(1000).to_string();
        let keys = self
            .cluster
            .strings(self.from, &["CLUSTER", "GETKEYSINSLOT", &self.slot, &most]);
        for key in &keys {
            self.move_key(key);
        }
        keys.len()
    }

    /// Moves one key.
    pub fn move_key(&self, key: &str) {
        let to = self.to.to_string();
        let mut parts = vec!["MIGRATE", "127.0.0.1", &to, key, "0", "5000"];
        if let Some(password) = &self.cluster.password {
            parts.extend(["AUTH", password]);
        }
        let answer = self.cluster.command(self.from, &parts);
        let moved = answer.starts_with("+OK") || answer.starts_with("+NOKEY");
        assert!(moved, "{key}: {answer}");
    }

    /// Moves what is left and hands the slot over. Answers the port of its new master.
    pub fn finish(self) -> u16 {
        while self.move_keys(usize::MAX) > 0 {}
        // The new owner first, as redis-cli does it: the old one must not think that nobody has it.
        let others = self.cluster.masters();
        let others = others.into_iter().filter(|port| *port != self.to);
        for port in [self.to].into_iter().chain(others) {
            self.cluster.with(port, |node| {
                node.cluster(&["SETSLOT", &self.slot, "NODE", &self.to_id]);
            });
        }
        self.to
    }
}
