//! The scripts: constant text, called by their hash and sent in full only when the server does not know it.

use std::sync::LazyLock;

/// A Lua script. Names and values travel in KEYS and ARGV only. It has two texts, as the command that publishes
/// is part of it.
#[derive(Debug)]
pub(super) struct Script {
    pub usual: Text,
    /// For a cluster with sharded channels, if that makes a difference.
    pub sharded: Option<Text>,
}

/// A text, and the hash by which a server knows it.
#[derive(Debug)]
pub(super) struct Text {
    pub text: &'static str,
    pub sha: LazyLock<String>,
}

impl Script {
    pub fn text(&self, sharded: bool) -> &Text {
        match &self.sharded {
            Some(text) if sharded => text,
            _ => &self.usual,
        }
    }
}

fn sha(text: &str) -> String {
    ::redis::Script::new(text).get_hash().to_owned()
}

macro_rules! text {
    ($($file:literal),+) => {
        Text {
            text: concat!($(include_str!(concat!("scripts/", $file))),+),
            sha: LazyLock::new(|| sha(concat!($(include_str!(concat!("scripts/", $file))),+))),
        }
    };
}

/// Scripts that publish.
macro_rules! publishing {
    ($($name:ident = $($file:literal),+;)*) => {$(
        pub(super) static $name: Script = Script {
            usual: text!("publish.lua", $($file),+),
            sharded: Some(text!("publish_sharded.lua", $($file),+)),
        };
    )*};
}

/// Scripts that publish nothing, or on ordinary channels only.
macro_rules! silent {
    ($($name:ident = $($file:literal),+;)*) => {$(
        pub(super) static $name: Script = Script {
            usual: text!($($file),+),
            sharded: None,
        };
    )*};
}

publishing! {
    ACQUIRE = "clock.lua", "acquire_fast.lua", "record.lua", "acquire.lua";
    RELEASE = "release_fast.lua", "clock.lua", "record.lua", "release.lua";
    WITHDRAW = "clock.lua", "record.lua", "withdraw.lua";
    INSPECT = "clock.lua", "record.lua", "inspect.lua";
    BREAK = "clock.lua", "record.lua", "break.lua";
    LATCH = "clock.lua", "latch.lua";
}

silent! {
    RENEW = "clock.lua", "renew.lua";
    PLAIN_ACQUIRE = "clock.lua", "plain_acquire.lua";
    PLAIN_RELEASE = "plain_release.lua";
    PLAIN_RENEW = "plain_renew.lua";
    PLAIN_INSPECT = "plain_inspect.lua";
    PLAIN_BREAK = "clock.lua", "plain_break.lua";
}
