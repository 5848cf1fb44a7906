//! Names that are special elsewhere.

use crate::common::*;
use lockkeeper::store::{Mode, Store};

#[tokio::test]
async fn names_differ_by_every_byte_and_nothing_in_them_is_special() {
    let store = open(&fresh()).await;
    let longest = "x".repeat(512);
    let names = [
        "Order",
        "order",
        "order ",
        " order",
        "ördér",
        "order🔒",
        "a'b",
        "a\"b",
        "a`b",
        "a\\b",
        "a\\'b",
        "a%b",
        "a_b",
        "a%",
        "%",
        "; DROP TABLE x; --",
        "/* */",
        "x'41'",
        "@n",
        "NULL",
        "?",
        &longest,
    ];
    let mut claims = Vec::new();
    for name in names {
        // Each is free, whichever others are held.
        let claim = claim(name, Mode::Exclusive);
        granted(&store, &claim).await;
        claims.push(claim);
    }
    let listed = store.list("").await.expect("lists");
    let mut listed: Vec<String> = listed.iter().map(|info| info.name.to_string()).collect();
    listed.sort();
    let mut expected = names.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(listed, expected);
    // A prefix is no pattern.
    let of = |prefix: &'static str| {
        let store = &store;
        async move { store.list(prefix).await.expect("lists").len() }
    };
    assert_eq!(of("a%").await, 2);
    assert_eq!(of("a_").await, 1);
    assert_eq!(of("order").await, 3);
    for claim in &claims {
        assert!(
            crate::claims::release(&store, claim)
                .await
                .expect("releases"),
            "{:?}",
            claim.name
        );
    }
    assert!(store.list("").await.expect("lists").is_empty());
}
