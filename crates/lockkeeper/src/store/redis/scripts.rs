//! The scripts: constant text, called by their hash and sent in full only when the server does not know it.

use std::sync::LazyLock;

/// A Lua script. Names and values travel in KEYS and ARGV only.
#[derive(Debug)]
pub(super) struct Script {
    pub text: &'static str,
    pub sha: LazyLock<String>,
}

macro_rules! scripts {
    ($($name:ident = $($file:literal),+;)*) => {$(
        pub(super) static $name: Script = Script {
            text: concat!($(include_str!(concat!("scripts/", $file))),+),
            sha: LazyLock::new(|| ::redis::Script::new($name.text).get_hash().to_owned()),
        };
    )*};
}

scripts! {
    ACQUIRE = "clock.lua", "acquire_fast.lua", "record.lua", "acquire.lua";
    RELEASE = "release_fast.lua", "clock.lua", "record.lua", "release.lua";
    WITHDRAW = "clock.lua", "record.lua", "withdraw.lua";
    RENEW = "clock.lua", "renew.lua";
    INSPECT = "clock.lua", "record.lua", "inspect.lua";
    BREAK = "clock.lua", "record.lua", "break.lua";
    LATCH = "clock.lua", "latch.lua";
    PLAIN_ACQUIRE = "clock.lua", "plain_acquire.lua";
    PLAIN_RELEASE = "plain_release.lua";
    PLAIN_RENEW = "plain_renew.lua";
    PLAIN_INSPECT = "plain_inspect.lua";
    PLAIN_BREAK = "clock.lua", "plain_break.lua";
}
