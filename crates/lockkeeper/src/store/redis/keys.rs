//! Which keys and channels belong to a name.
//!
//! Redisson's are built as Redisson does: `prefix:{name}`, but `prefix:name` for a name that has a brace of
//! its own. So `x` and `{x}` share them. Ours are told apart by a second colon, as a mix-up would cost more.

use std::fmt;

use ::redis::{Cmd, RedisWrite};

use crate::{Error, Name};

/// What our own keys start with.
pub(super) const OWN: &str = "lockkeeper_";
const HOLDERS: &str = "lockkeeper_holders:";
const QUEUE: &str = "lockkeeper_queue:";
const TOKEN: &str = "lockkeeper_token:";
/// Redisson's fence.
pub(super) const FENCE: &str = "redisson_lock_token:";

/// Names that start like this would be taken for keys of another name.
const RESERVED: [&str; 4] = [OWN, FENCE, "redisson_lock_queue:", "redisson_lock_timeout:"];

/// The keys of one name. They are written where they are needed, not kept: a try has four of them.
#[derive(Debug)]
pub(super) struct Keys {
    /// The key at the name itself.
    pub main: String,
    /// Whether the name has a brace of its own.
    braced: bool,
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
    pub fn new(prefix: &str, name: &Name) -> Result<Keys, Error> {
        let main = [prefix, name.as_str()].concat();
        if let Some(reserved) = RESERVED.iter().find(|start| main.starts_with(**start)) {
            return Err(Error::InvalidName {
                reason: format!(
                    "keys that start with {reserved:?} are the store's own; rename the lock"
                ),
            });
        }
        let braced = main.contains('{');
        Ok(Keys { main, braced })
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

    /// How many keys [`Keys::write_record`] writes.
    pub const RECORD: usize = 4;

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

    /// Where Redisson tells of a latch. It always adds braces here.
    pub fn latch_channel(&self) -> String {
        format!("redisson_countdownlatch__channel__{{{}}}", self.main)
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
