//! The scripts that a node runs: constant text, called by their hash.

use crate::store::redis::scripts::{Script, Text};

macro_rules! scripts {
    ($($name:ident = $($file:literal),+;)*) => {$(
        pub(super) static $name: Script = Script {
            usual: Text::new(concat!($(include_str!(concat!("scripts/", $file))),+)),
            sharded: None,
        };
    )*};
}

scripts! {
    JOIN = "join.lua";
    ACQUIRE = "../../redis/scripts/clock.lua", "acquire_fast.lua", "../../redis/scripts/time.lua", "token.lua", "acquire.lua", "record.lua", "acquire_beside.lua";
    RELEASE = "release.lua", "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "token.lua", "used.lua", "record.lua",
        "release_beside.lua";
    RENEW = "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "../../redis/scripts/stay.lua", "renew.lua";
    INSPECT = "record.lua", "inspect.lua";
    BREAK = "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "token.lua", "record.lua", "break.lua";
    PLAIN_ACQUIRE = "../../redis/scripts/clock.lua", "plain_acquire_fast.lua", "../../redis/scripts/time.lua", "token.lua", "plain_acquire.lua";
    PLAIN_RELEASE = "plain_release.lua", "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "token.lua", "used.lua";
    PLAIN_RENEW = "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "../../redis/scripts/stay.lua", "plain_renew.lua";
    PLAIN_INSPECT = "plain_inspect.lua";
    PLAIN_BREAK = "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "token.lua", "plain_break.lua";
}
