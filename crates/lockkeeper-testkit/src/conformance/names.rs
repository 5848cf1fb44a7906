//! Nothing in a name is special, and no two names are one.

use lockkeeper::store::LatchOp::{Read, Set};
use lockkeeper::{Error, MAX_NAME_BYTES};

use super::Subject;
use super::client::name;

/// Names that some store somewhere takes for something else.
fn odd() -> Vec<String> {
    let mut names: Vec<String> = [
        "plain",
        " ",
        "  two  spaces  ",
        "订单:42",
        "Ünïcödé",
        "🔒",
        "{tag}:x",
        "{}",
        "}{",
        "{a}{b}",
        "../../etc/passwd",
        "/absolute/path",
        "C:\\windows\\path",
        "a/b/c",
        "'; DROP TABLE lock; --",
        "\" OR 1=1",
        "%",
        "_",
        "*",
        "?",
        "[a-z]",
        "$1",
        ":colon:",
        "a:b:c",
        "#hash",
        "key=value&x",
        "NULL",
        "0",
        "-1",
        "\u{200B}",
        "\u{FEFF}bom",
        "\u{202E}right to left",
        "redisson_lock__channel:{x}",
    ]
    .map(String::from)
    .to_vec();
    names.push("x".repeat(MAX_NAME_BYTES));
    names.push("键".repeat(MAX_NAME_BYTES / 3));
    names.push("%".repeat(MAX_NAME_BYTES));
    names
}

/// Groups of names that a careless comparison takes for one.
fn similar() -> Vec<String> {
    let mut names: Vec<String> = [
        "case", "Case", "CASE", "space", "space ", " space", "é", "e\u{301}", "ss", "ß", "i", "ı",
        "İ", "I", "{x}", "x", "{x", "x}", "1", "01", "1.0", "a", "a/", "/a", "a/b", "a%", "a_",
        "aa", "ab", "\u{FB01}", "fi",
    ]
    .map(String::from)
    .to_vec();
    for last in ["a", "b"] {
        names.push(format!("{}{last}", "n".repeat(MAX_NAME_BYTES - 1)));
    }
    names
}

/// Looks whether the names that the store cannot keep are refused in words, and answers the others.
async fn check_refused(s: &Subject, names: Vec<String>) -> Vec<String> {
    let (a, _) = s.clients();
    let (refused, kept): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| (s.refuses)(name));
    for text in &refused {
        let answer = a.store.try_acquire(&a.claim(text)).await;
        assert!(
            matches!(answer, Err(Error::InvalidName { .. })),
            "{text:?}: {answer:?}"
        );
    }
    kept
}

/// Holds all names at once, and looks whether each is a lock of its own.
async fn check_exactly(s: Subject, names: Vec<String>) {
    let mut names = check_refused(&s, names).await;
    let (a, b) = s.clients();
    let mut claims = Vec::new();
    for text in &names {
        let claim = a.claim(text);
        a.granted(&claim).await;
        claims.push(claim);
    }
    for (text, claim) in names.iter().zip(&claims) {
        b.busy(&b.claim(text)).await;
        let info = b.inspect(&claim.name).await.expect("it is held");
        assert_eq!(info.name.as_str(), text);
        assert_eq!(info.holders.len(), 1, "{text:?}");
        assert_eq!(info.holders[0].claim, claim.id, "{text:?}");
    }
    for (text, claim) in names.iter().zip(&claims) {
        assert!(a.release(claim).await, "{text:?}");
        let again = b.claim(text);
        b.granted(&again).await;
    }
    names.sort_unstable();
    assert_eq!(a.list("").await, names);
}

pub(super) async fn odd_names_work_exactly(s: Subject) {
    check_exactly(s, odd()).await;
}

pub(super) async fn similar_names_are_different_names(s: Subject) {
    check_exactly(s, similar()).await;
}

pub(super) async fn odd_latch_names_work_exactly(s: Subject) {
    let (a, b) = s.clients();
    let names = odd().into_iter().chain(similar()).collect();
    let names = check_refused(&s, names).await;
    for (count, text) in (1..).zip(&names) {
        assert!(a.latch(text, Set(count)).await.changed, "{text:?}");
    }
    for (count, text) in (1..).zip(&names) {
        assert_eq!(b.latch(text, Read).await.count, count, "{text:?}");
    }
    assert!(b.inspect(&name("plain")).await.is_none());
}
