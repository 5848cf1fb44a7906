//! A URL of the Redis store never panics, and its password is never shown: neither by what is read nor by an error.
#![cfg_attr(fuzzing, no_main)]

use lockkeeper::store::redis::read_url;
use lockkeeper::url::StoreUrl;

fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(url) = StoreUrl::parse(text) else {
        return;
    };
    let shown = match read_url(&url) {
        Ok(settings) => settings,
        Err(error) => format!("{error} {error:?}"),
    };
    let authority = text.split("//").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next());
    if authority.is_some_and(|it| it.contains(":hunter2@")) && text.matches("hunter2").count() == 1 {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

lockkeeper_fuzz::target!(
    check,
    &[
        "redis://me:hunter2@host:1/0?dialect=plain&prefix=a%3A",
        "redis://:hunter2@[::1]:6379?connect_timeout=50ms&response_timeout=1s",
        "rediss://h?ca=/a.pem&cert=/b.pem&key=/c.pem&db=3",
        "rediss://h?insecure=yes",
        "redis+unix://me:hunter2@/run/redis.sock?db=1",
        "redis+sentinel://me:hunter2@a,b:7,[::1]/my%20master/3?sentinel_user=watch",
        "redis+cluster://a:7000,b?replicas=2&replicas_timeout=300ms",
        "redis://h?password_file=/no/such/file",
    ]
);
