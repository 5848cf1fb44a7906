//! A URL of a quorum never panics, and its password is never shown: neither by what is read nor by an error.
#![cfg_attr(fuzzing, no_main)]

use lockkeeper::store::quorum::read_url;
use lockkeeper::url::StoreUrl;

fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(url) = StoreUrl::parse(text) else {
        return;
    };
    let read = read_url(&url);
    let shown = match &read {
        Ok(quorum) => quorum.clone(),
        Err(error) => format!("{error} {error:?}"),
    };
    let rest = text.split_once("//").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains(":hunter2@") && text.matches("hunter2").count() == 1 {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    if read.is_ok() {
        let hosts = authority.rsplit('@').next().unwrap_or_default();
        assert!((3..=15).contains(&hosts.split(',').count()), "{text:?}");
    }
}

lockkeeper_fuzz::target!(
    check,
    &[
        "redlock://a:6379,b:6379,c:6379",
        "redlock://me:hunter2@a,b:7,[::1]:8/3?max_lease=5s&node_timeout=40ms&dialect=plain&prefix=x%3A",
        "redlock://:hunter2@a,b,c,d,e?quarantine=off&response_timeout=1s&connect_timeout=50ms",
        "redlock://u:hunter2@a,b,c?tls=yes&ca=/a.pem&cert=/b.pem&key=/c.pem&token_retention=7d",
        "redlock://a,b,c?tls=yes&insecure=yes",
        "redlock://a,b,a?max_lease=18446744073709551615d",
        "redlock://a,,b/x?replicas=1&sentinel_user=me",
        "redlock://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        "redlock://a,b,c?password_file=/no/such/file",
    ]
);
