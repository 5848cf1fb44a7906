//! Which keys and channels belong to a name.
//!
//! Redisson's are built as Redisson does: `prefix:{name}`, but `prefix:name` for a name that has a brace of
//! its own. So `x` and `{x}` share them. Ours are told apart by a second colon, as a mix-up would cost more.

use std::fmt;

use ::redis::{Cmd, RedisWrite};

use super::slots;
use super::topology::Topology;
use super::url::Settings;
use crate::{Error, Name};

/// What our own keys start with.
pub(super) const OWN: &str = "lockkeeper_";
const HOLDERS: &str = "lockkeeper_holders:";
const QUEUE: &str = "lockkeeper_queue:";
const TOKEN: &str = "lockkeeper_token:";
/// What the channels start with on which processes hear hints.
pub(in crate::store) const WAKE: &str = "lockkeeper_wake:";
/// Redisson's fence.
pub(super) const FENCE: &str = "redisson_lock_token:";

/// Names that start like this would be taken for keys of another name.
const RESERVED: [&str; 4] = [OWN, FENCE, "redisson_lock_queue:", "redisson_lock_timeout:"];

/// How many keys [`Keys::write_record`] writes.
const RECORD: usize = 4;

/// The keys of one name. They are written where they are needed, not kept: a try has four of them.
#[derive(Debug)]
pub(in crate::store) struct Keys {
    /// The key at the name itself.
    pub main: String,
    /// Whether the name has a brace of its own.
    braced: bool,
    /// In a cluster, the slot they all share.
    slot: Option<u16>,
}

/// The name as it stands in other keys.
struct Tag<'a>(&'static str, &'a str, &'static str);

impl fmt::Display for Tag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tag(open, main, close) = self;
        f.write_str(open)?;
        f.write_str(main)?;
        f.write_str(close)
    }
}

impl Keys {
    /// The keys of a name on these servers.
    pub(super) fn of(settings: &Settings, name: &Name) -> Result<Keys, Error> {
        let mut keys = Keys::new(&settings.prefix, name)?;
        if let Topology::Cluster(_) = settings.topology {
            keys.slot = Some(keys.common_slot()?);
        }
        Ok(keys)
    }

    /// A name with a brace is hashed by what its braces enclose, in every key. Without one, braces are put around
    /// the name, which works unless it ends them itself.
    fn common_slot(&self) -> Result<u16, Error> {
        let enclosed = slots::hash_tag(self.main.as_bytes()).is_some();
        match (self.braced, self.main.contains('}')) {
            (false, false) => {}
            (true, _) if enclosed => {}
            _ => {
                return Err(Error::InvalidName {
                    reason: format!(
                        "in a cluster the keys of {:.80?} would be on different nodes; enclose a part of the name \
                         in braces, as in `{{user}}:7`, or use none",
                        self.main
                    ),
                });
            }
        }
        Ok(slots::slot(self.main.as_bytes()))
    }

    /// The slot of the keys; 0 where there are no slots.
    pub fn slot(&self) -> u16 {
        self.slot.unwrap_or(0)
    }

    fn new(prefix: &str, name: &Name) -> Result<Keys, Error> {
        let main = [prefix, name.as_str()].concat();
        if let Some(reserved) = RESERVED.iter().find(|start| main.starts_with(**start)) {
            return Err(Error::InvalidName {
                reason: format!(
                    "keys that start with {reserved:?} are the store's own; rename the lock"
                ),
            });
        }
        let braced = main.contains('{');
        Ok(Keys {
            main,
            braced,
            slot: None,
        })
    }

    /// As Redisson puts it into its keys.
    pub fn tag(&self) -> impl fmt::Display {
        match self.braced {
            true => Tag("", &self.main, ""),
            false => Tag("{", &self.main, "}"),
        }
    }

    /// As we put it into ours.
    fn own(&self) -> impl fmt::Display {
        match self.braced {
            true => Tag(":", &self.main, ""),
            false => Tag("{", &self.main, "}"),
        }
    }

    pub fn holders(&self) -> String {
        format!("{HOLDERS}{}", self.own())
    }

    pub fn aside(&self) -> String {
        format!("lockkeeper_aside:{}", self.own())
    }

    pub fn permits(&self) -> String {
        format!("{}:timeout", self.tag())
    }

    pub fn latch(&self) -> String {
        format!("lockkeeper_latch:{}", self.own())
    }

    pub fn broken(&self) -> String {
        format!("lockkeeper_broken:{}", self.own())
    }

    /// What is written for replicas to confirm: in the slot of the name, as it has to be on its server.
    pub fn marker(&self) -> String {
        format!("lockkeeper_marker:{}", self.own())
    }

    /// Redisson's fence.
    pub fn fence(&self) -> String {
        format!("{FENCE}{}", self.tag())
    }

    /// The fence of the plain dialect.
    pub fn plain_token(&self) -> String {
        format!("{TOKEN}{}", self.own())
    }

    /// The keys of a try in the plain dialect.
    pub fn write_plain(&self, cmd: &mut Cmd) {
        cmd.arg(&self.main);
        cmd.write_arg_fmt(format_args!("{TOKEN}{}", self.own()));
    }

    /// The keys of the scripts that know the whole record, in their order. They derive the rest, which they
    /// seldom need: every argument costs the server time.
    pub fn write_record(&self, cmd: &mut Cmd) {
        self.write_three(cmd);
        cmd.write_arg_fmt(format_args!("{FENCE}{}", self.tag()));
    }

    /// The keys of a release.
    pub fn write_release(&self, cmd: &mut Cmd) {
        self.write_three(cmd);
        cmd.write_arg_fmt(format_args!("redisson_lock_queue:{}", self.tag()));
    }

    fn write_three(&self, cmd: &mut Cmd) {
        let own = self.own();
        cmd.arg(&self.main);
        cmd.write_arg_fmt(format_args!("{HOLDERS}{own}"));
        cmd.write_arg_fmt(format_args!("{QUEUE}{own}"));
    }

    /// The keys of a script that runs alone, their number first: those of the record, and `more`.
    pub fn write_alone(&self, cmd: &mut Cmd, more: Option<String>) {
        let witness = self.witness();
        cmd.arg(RECORD + more.iter().len() + witness.iter().len());
        self.write_record(cmd);
        cmd.arg(more).arg(witness);
    }

    /// While a slot is moved, a node runs a script only if it has every key that is named. In a cluster one
    /// is named that never exists: else a script would end half done at the first it derives and lacks.
    pub fn witness(&self) -> Option<String> {
        self.slot
            .map(|_| format!("lockkeeper_never:{}", self.own()))
    }

    /// Where, in a cluster, the process with this channel hears hints about this name.
    pub fn wake_channel(&self, channel: &str) -> String {
        let process = channel.trim_start_matches(WAKE);
        format!("{WAKE}{}:{process}", self.own())
    }

    /// A waiter of ours that listens to Redisson's sharded channels of the name also listens here, to be told apart.
    pub fn listen_channel(&self) -> String {
        format!("lockkeeper_listen:{}", self.own())
    }

    /// Where Redisson tells of a lock that is free.
    pub fn lock_channel(&self) -> String {
        format!("redisson_lock__channel:{}", self.tag())
    }

    /// Where Redisson tells of readers and writers that left.
    pub fn rw_channel(&self) -> String {
        format!("redisson_rwlock:{}", self.tag())
    }

    /// Where Redisson tells of free permits.
    pub fn permit_channel(&self) -> String {
        format!("redisson_sc:{}", self.tag())
    }

    /// Where Redisson tells of a latch. It always adds braces here. Where those lead to another slot, as for
    /// `{user}:7`, nobody can publish there from a script: then a channel of ours.
    pub fn latch_channel(&self) -> String {
        let channel = format!("redisson_countdownlatch__channel__{{{}}}", self.main);
        match self.slot {
            Some(slot) if slots::slot(channel.as_bytes()) != slot => self.latch(),
            _ => channel,
        }
    }
}

/// The name behind a key of ours, if the key says that the name is held or waited for (dialect redisson).
pub(super) fn name_in_use<'a>(prefix: &str, key: &'a str) -> Option<&'a str> {
    let own = key.strip_prefix(HOLDERS).or(key.strip_prefix(QUEUE))?;
    untag(own)?.strip_prefix(prefix)
}

/// The keys at a name that a fence of Redisson's may be of: it does not tell `x` from `{x}`.
pub(super) fn fenced(key: &str) -> impl Iterator<Item = &str> {
    let tag = key.strip_prefix(FENCE).unwrap_or_default();
    let inner = tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}'));
    let inner = inner.filter(|inner| !inner.contains('{'));
    let whole = Some(tag).filter(|tag| tag.contains('{'));
    inner.into_iter().chain(whole)
}

/// The name behind a fence of the plain dialect.
pub(super) fn name_with_token<'a>(prefix: &str, key: &'a str) -> Option<&'a str> {
    untag(key.strip_prefix(TOKEN)?)?.strip_prefix(prefix)
}

fn untag(own: &str) -> Option<&str> {
    match own.strip_prefix(':') {
        Some(name) => Some(name),
        None => own.strip_prefix('{')?.strip_suffix('}'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str, name: &str) -> Keys {
        Keys::new(prefix, &Name::new(name).expect(name)).expect(name)
    }

    #[test]
    fn redissons_keys_are_built_as_redisson_does() {
        let plain = keys("", "order:42");
        assert_eq!(plain.main, "order:42");
        assert_eq!(plain.lock_channel(), "redisson_lock__channel:{order:42}");
        assert_eq!(plain.permits(), "{order:42}:timeout");
        let tagged = keys("", "{user}:7");
        assert_eq!(tagged.lock_channel(), "redisson_lock__channel:{user}:7");
        assert_eq!(tagged.permits(), "{user}:7:timeout");
        assert_eq!(
            tagged.latch_channel(),
            "redisson_countdownlatch__channel__{{user}:7}"
        );
    }

    #[test]
    fn in_a_cluster_all_keys_of_a_name_share_a_slot() {
        for name in ["x", "a:b", "{user}:7", "{a}{b}", "x{y}z", "}{a}", "订单"] {
            let keys = keys("", name);
            let slot = keys.common_slot().expect(name);
            for key in [
                keys.holders(),
                keys.aside(),
                keys.permits(),
                keys.latch(),
                keys.broken(),
                keys.plain_token(),
                keys.lock_channel(),
                keys.rw_channel(),
                keys.permit_channel(),
                keys.listen_channel(),
                keys.wake_channel("lockkeeper_wake:id"),
            ] {
                assert_eq!(slots::slot(key.as_bytes()), slot, "{key}");
            }
            let keys = Keys {
                slot: Some(slot),
                ..keys
            };
            assert_eq!(slots::slot(keys.latch_channel().as_bytes()), slot, "{name}");
        }
        for name in ["{", "}", "a}b", "a{}b", "{}", "}{", "{x", "x}", "a{}{b}"] {
            assert!(keys("", name).common_slot().is_err(), "{name}");
        }
    }

    #[test]
    fn our_keys_lead_back_to_their_name() {
        for name in [
            "x", "{x}", "{x", "x}", "{}", "}{", ":x", ":{x}", "a:b", "订单",
        ] {
            for prefix in ["", "app:", "{app}:"] {
                let keys = keys(prefix, name);
                assert_eq!(name_in_use(prefix, &keys.holders()), Some(name));
                assert_eq!(name_with_token(prefix, &keys.plain_token()), Some(name));
            }
        }
        assert_ne!(keys("", "x").holders(), keys("", "{x}").holders());
        assert_eq!(name_in_use("app:", &keys("", "other").holders()), None);
        assert_eq!(name_in_use("", &keys("", "x").broken()), None);
    }

    #[test]
    fn a_name_that_looks_like_a_key_of_ours_is_refused() {
        for name in ["lockkeeper_holders:{x}", "redisson_lock_token:{x}"] {
            let name = Name::new(name).expect("a valid name");
            assert!(Keys::new("", &name).is_err(), "{name}");
            assert!(Keys::new("app:", &name).is_ok(), "{name}");
        }
    }
}
