//! What comes with a hint on Redis never panics, and is a grant only as the scripts write it.
#![cfg_attr(fuzzing, no_main)]

use lockkeeper::clock::Moment;
use lockkeeper::store::redis::read_grant;

fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Some(direct) = read_grant(text) else {
        return;
    };
    let (grant, sent) = (direct.grant, direct.sent);
    assert!(grant.token.get() > 0 && grant.tokens > 0 && sent <= Moment::now(), "{direct:?}");
    let last = grant.token.get() + u64::from(grant.tokens) - 1;
    let written = format!("{last}/{}/{}", grant.tokens, sent.as_nanos());
    assert_eq!(read_grant(&written), Some(direct));
}

lockkeeper_fuzz::target!(
    check,
    &[
        "1700000000000000/1/36123456789012",
        "1700000000000256/257/0",
        "18446744073709551615/4294967295/1",
        "1/1/18446744073709551615",
        "1/2/3/",
    ]
);
