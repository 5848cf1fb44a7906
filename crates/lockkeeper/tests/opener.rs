//! Stores that other crates bring: a URL opens them, on the keeper's own thread.

use std::sync::{Arc, Mutex};

use lockkeeper::store::memory::{self, MemoryStore};
use lockkeeper::store::{Answer, Opener, Scheme, Store};
use lockkeeper::url::{STORE_VARIABLE, StoreUrl};
use lockkeeper::{Error, Lockkeeper};

const TOY: &[Scheme] =
    &[Scheme::new("toy", "toy:/some/where").with_capabilities(Some(memory::CAPABILITIES))];

/// Opens one memory store, and remembers how it was asked to.
#[derive(Clone, Debug, Default)]
struct Toy {
    serves: Option<&'static str>,
    store: Arc<MemoryStore>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Opener for Toy {
    fn schemes(&self) -> &[Scheme] {
        TOY
    }
    fn serves(&self, scheme: &str) -> bool {
        scheme == self.serves.unwrap_or("toy")
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        let thread = std::thread::current();
        let asked = format!("{url} on {}", thread.name().unwrap_or("a thread"));
        self.asked.lock().expect("a list").push(asked);
        Box::pin(async {
            // There is a runtime there, with timers.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            Ok(self.store.clone() as Arc<dyn Store>)
        })
    }
}

#[tokio::test]
async fn a_url_opens_what_was_added_on_the_keepers_thread() {
    let toy = Toy::default();
    let builder = Lockkeeper::builder().opener(toy.clone());
    let keeper = builder.url("TOY:/a/b").connect().await.expect("connects");
    let guard = keeper.lock("x").expect("a lock").acquire().await;
    assert_eq!(toy.store.in_use().0, 1, "it is this store");
    guard.expect("acquires").release().await.expect("releases");
    let asked = toy.asked.lock().expect("a list").clone();
    assert_eq!(asked, ["toy:/a/b on lockkeeper"]);
}

#[test]
fn no_runtime_is_needed() {
    let builder = Lockkeeper::builder().opener(Toy::default()).url("toy:");
    let keeper = builder.connect_blocking().expect("connects");
    assert!(keeper.lock("x").expect("a lock").acquire().is_ok());
}

#[tokio::test]
async fn added_openers_come_before_the_stores_of_this_crate() {
    let toy = Toy {
        serves: Some("memory"),
        ..Toy::default()
    };
    let builder = Lockkeeper::builder().opener(Toy::default());
    let builder = builder.opener(toy.clone()).url("memory:");
    let keeper = builder.connect().await.expect("connects");
    let _guard = keeper.lock("x").expect("a lock").acquire().await;
    assert_eq!(toy.store.in_use().0, 1);
    let other = Lockkeeper::connect("memory:").await.expect("connects");
    assert!(other.list("").await.expect("lists").is_empty());
}

#[tokio::test]
async fn the_error_for_an_unknown_scheme_names_the_stores_there_are() {
    let builder = Lockkeeper::builder().opener(Toy::default()).url("tyo:");
    let error = builder.connect().await.expect_err("a typo");
    assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
    for word in ["\"tyo\"", "toy:/some/where", "memory:"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let error = Lockkeeper::connect("toy:").await.expect_err("not added");
    assert!(!error.to_string().contains("toy:/some/where"), "{error}");
}

#[tokio::test]
async fn an_opener_without_a_url_is_not_quietly_the_default_store() {
    if std::env::var_os(STORE_VARIABLE).is_some() {
        return;
    }
    let keeper = Lockkeeper::builder().opener(Toy::default()).connect().await;
    let error = keeper.expect_err("nothing names a store").to_string();
    assert!(error.contains("toy:/some/where"), "{error}");
}
