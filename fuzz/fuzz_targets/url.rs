//! A store URL never panics, never shows its password, and reads back as itself when it has none.
#![cfg_attr(fuzzing, no_main)]

use lockkeeper::url::StoreUrl;

fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(url) = StoreUrl::parse(text) else {
        return;
    };
    let shown = url.to_string();
    assert_eq!(shown, format!("{url:?}"));
    let _ = url.path();
    if url.has_password() {
        let again = StoreUrl::parse(&shown).expect("what is shown is a URL");
        assert!(shown.contains(":***@"), "{shown:?}");
        assert_eq!(again.to_string(), shown, "hiding twice changes nothing");
    } else if !shown.contains('@') {
        assert_eq!(StoreUrl::parse(&shown).expect("reads back"), url);
    }
}

lockkeeper_fuzz::target!(
    check,
    &[
        "sqlite:/srv/locks.db",
        "sqlite:///srv/a b.db",
        "memory:",
        "memory:name",
        "redis://me:hun@ter2@host:1/0?x=y#z",
        "redis://:@",
        "rediss://user@[::1]:6379",
        "a+b-c.d:",
    ]
);
