//! Which names there are, in a keyspace that may have much else.

use std::collections::BTreeSet;

use super::RedisStore;
use super::answer::{self, Reply};
use super::connection::Connection;
use super::fault::{Fault, NO_LOCK};
use super::keys;
use super::node::NodeLink;
use super::url::Dialect;
use crate::store::LockInfo;
use crate::{Error, Name};

impl RedisStore {
    /// Finds names by keys of ours.
    pub(super) async fn look_all(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let mut names = BTreeSet::new();
        for server in self.servers.masters() {
            let mut cursor = "0".to_owned();
            loop {
                let (keys, next) = scan(&server, &cursor, keys::OWN).await?;
                for key in &keys {
                    self.add_name(key, prefix, &mut names);
                }
                if next == "0" {
                    break;
                }
                cursor = next;
            }
            if self.dialect() == Dialect::Redisson {
                self.add_fenced(&server, prefix, &mut names).await?;
            }
        }
        let mut infos = Vec::new();
        for name in &names {
            match self.look(name, 0).await {
                // It has taken the place of a lock that was there.
                Err(Error::Refused { reason, .. }) if reason.starts_with(NO_LOCK) => {}
                look => infos.extend(look?),
            }
        }
        infos.retain(|info| !info.holders.is_empty() || info.waiters > 0);
        Ok(infos)
    }

    /// A lock that is held, and that nobody else wants, has no key of ours: its fence leads to it.
    async fn add_fenced(
        &self,
        server: &Connection,
        prefix: &str,
        names: &mut BTreeSet<Name>,
    ) -> Result<(), Error> {
        let own = &self.servers.settings().prefix;
        let start = format!("{own}{prefix}");
        let mut cursor = "0".to_owned();
        loop {
            let (fences, next) = scan(server, &cursor, keys::FENCE).await?;
            let mains = fences.iter().flat_map(|fence| keys::fenced(fence));
            let mains: Vec<&str> = mains.filter(|main| main.starts_with(&start)).collect();
            let exist = match server.exist(&mains).await {
                // A slot that is on its way elsewhere: a closer look at each finds it.
                Err(Fault::Server(_)) => vec![true; mains.len()],
                exist => exist.map_err(Fault::of_look)?,
            };
            for (main, _) in mains.iter().zip(exist).filter(|(_, exists)| *exists) {
                names.extend(Name::new(&main[own.len()..]).ok());
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn add_name(&self, key: &str, prefix: &str, names: &mut BTreeSet<Name>) {
        let own = &self.servers.settings().prefix;
        let name = match self.dialect() {
            Dialect::Redisson => keys::name_in_use(own, key),
            Dialect::Plain => keys::name_with_token(own, key),
        };
        let name = name.filter(|name| name.starts_with(prefix));
        names.extend(name.and_then(|name| Name::new(name).ok()));
    }
}

impl NodeLink {
    /// Names that start like this and have a key: those with a fence.
    pub async fn names(&self, prefix: &str) -> Result<BTreeSet<Name>, Error> {
        let settings = self.0.settings();
        let (own, plain) = (&settings.prefix, settings.dialect == Dialect::Plain);
        let start = format!("{own}{prefix}");
        let mut names = BTreeSet::new();
        let mut cursor = "0".to_owned();
        loop {
            let fences = if plain { keys::OWN } else { keys::FENCE };
            let (fences, next) = scan(&self.0, &cursor, fences).await?;
            let mains: Vec<String> = match plain {
                true => {
                    let names = fences
                        .iter()
                        .filter_map(|fence| keys::name_with_token(own, fence));
                    names.map(|name| format!("{own}{name}")).collect()
                }
                false => {
                    let mains = fences.iter().flat_map(|fence| keys::fenced(fence));
                    mains.map(str::to_owned).collect()
                }
            };
            let mains = mains.iter().map(String::as_str);
            let mains: Vec<&str> = mains.filter(|main| main.starts_with(&start)).collect();
            let exist = self.0.exist(&mains).await.map_err(Fault::of_look)?;
            for (main, _) in mains.iter().zip(exist).filter(|(_, exists)| *exists) {
                names.extend(Name::new(&main[own.len()..]).ok());
            }
            if next == "0" {
                return Ok(names);
            }
            cursor = next;
        }
    }
}

/// One page of a server's keys that start like this.
async fn scan(
    server: &Connection,
    cursor: &str,
    start: &str,
) -> Result<(Vec<String>, String), Error> {
    let mut scan = ::redis::cmd("SCAN");
    scan.arg(cursor)
        .arg("MATCH")
        .arg(format!("{start}*"))
        .arg("COUNT")
        .arg(1000);
    let page = server.send(&scan, false).await.map_err(Fault::of_look)?;
    let page = Reply::new(page)?;
    let keys: Result<_, Error> = page.list(1)?.iter().map(answer::text).collect();
    Ok((keys?, page.text(0)?))
}
