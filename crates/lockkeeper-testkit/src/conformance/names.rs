//! Nothing in a name is special, and no two names are one.

use lockkeeper::clock::Moment;
use lockkeeper::store::LatchOp::{Read, Set};
use lockkeeper::store::LatchRequest;
use lockkeeper::{Error, Lockkeeper, MAX_NAME_BYTES};

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

/// Names that some store needs for itself.
const TAKEN: [&str; 8] = [
    "lockkeeper_",
    "lockkeeper_token:{x}",
    "redisson_lock_token:x",
    "redisson_lock_queue:{x}",
    "redisson_lock_timeout:{x}",
    "zookeeper",
    ".lockkeeper",
    ".latches",
];

#[track_caller]
fn is_refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> bool {
    match answer {
        Ok(_) => false,
        Err(Error::InvalidName { .. }) => true,
        other => panic!("{other:?}"),
    }
}

/// A program has its locks before it needs them, and learns then that a name cannot be one.
pub(super) async fn a_name_that_is_refused_is_refused_at_once(s: Subject) {
    let (a, _) = s.clients();
    let keeper = Lockkeeper::builder().store(s.store()).connect().await;
    let keeper = keeper.expect("connects");
    let can = keeper.capabilities();
    let names = odd().into_iter().chain(similar());
    for text in names.chain(TAKEN.map(String::from)) {
        let refused = is_refused(a.store.try_acquire(&a.claim(&text)).await);
        let check = a.store.check_name(&name(&text));
        assert_eq!(is_refused(check), refused, "{text:?}");
        assert_eq!(is_refused(keeper.lock(&text)), refused, "{text:?}");
        let several = keeper.multi_lock(["plain", &text]);
        assert_eq!(is_refused(several), refused, "{text:?}");
        if can.read_write {
            assert_eq!(is_refused(keeper.rwlock(&text)), refused, "{text:?}");
        }
        if can.permits {
            assert_eq!(is_refused(keeper.semaphore(&text, 1)), refused, "{text:?}");
        }
        if can.latches {
            let latch = keeper.latch(&text).map(drop);
            assert_eq!(is_refused(latch), refused, "{text:?}");
            let request = LatchRequest::new(name(&text), a.id(), Read, Moment::NEVER);
            let asked = a.store.latch(&request).await;
            assert_eq!(is_refused(asked), refused, "{text:?}");
        }
    }
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
