//! Which path a name has, and back.
//!
//! Name `orders/42` is the path `/orders/42` below the chroot, as Curator has it. What ZooKeeper refuses in a path, and what
//! has a meaning of its own there, is written as `%XX` of its UTF-8. Each name has one path, and each path at most one name.

use super::line;

/// The node that tokens count from.
pub const BASE: &str = ".lockkeeper";
/// What latches stand below.
pub const LATCHES: &str = ".latches";
/// ZooKeeper's own.
pub const RESERVED: &str = "zookeeper";
/// The line and the leases of a semaphore, below its path.
pub const PERMIT_LINE: &str = "locks";
pub const PERMIT_LEASES: &str = "leases";

/// The path of a name, without the chroot.
pub fn path(name: &str) -> String {
    let mut path = String::with_capacity(name.len() + 1);
    for (at, part) in name.split('/').enumerate() {
        path.push('/');
        path.push_str(&escape(part, at == 0));
    }
    path
}

/// A name as one part of a path.
pub fn flat(name: &str) -> String {
    let escaped = escape(name, true);
    escaped.replace('/', "%2F")
}

/// The name of a path without the chroot, if it has one.
pub fn name(path: &str) -> Option<String> {
    let parts = path.strip_prefix('/')?.split('/');
    let parts: Option<Vec<String>> = parts.map(unescape).collect();
    let name = parts?.join("/");
    // A part that only other clients write is no name of ours.
    (self::path(&name) == path).then_some(name)
}

fn escape(part: &str, first: bool) -> String {
    if part.is_empty() {
        return "%".into();
    }
    let special = matches!(part, "." | "..")
        || first && matches!(part, RESERVED | LATCHES | BASE)
        || !first && matches!(part, PERMIT_LINE | PERMIT_LEASES)
        || line::Contender::parse(part).is_some();
    let mut escaped = String::with_capacity(part.len());
    for (at, c) in part.char_indices() {
        if c == '%' || is_refused(c) || special && (at == 0 || part == "..") {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn unescape(part: &str) -> Option<String> {
    match part {
        "%" => Some(String::new()),
        "" => None,
        _ => {
            let mut bytes = Vec::with_capacity(part.len());
            let mut rest = part.bytes();
            while let Some(byte) = rest.next() {
                bytes.push(match byte {
                    b'%' => {
                        let digits = [rest.next()?, rest.next()?];
                        let digits = std::str::from_utf8(&digits).ok()?;
                        u8::from_str_radix(digits, 16).ok()?
                    }
                    byte => byte,
                });
            }
            String::from_utf8(bytes).ok()
        }
    }
}

/// What a server refuses in a path. It looks at UTF-16, where all beyond the first plane is made of surrogates.
fn is_refused(c: char) -> bool {
    matches!(
        u32::from(c),
        0..=0x1F | 0x7F..=0x9F | 0xD800..=0xF8FF | 0xFFF0..
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_path_and_what_is_special_is_escaped() {
        for (given, expected) in [
            ("orders/42", "/orders/42"),
            ("a", "/a"),
            ("a%", "/a%25"),
            ("🔒", "/%F0%9F%94%92"),
            ("键", "/键"),
            (".", "/%2E"),
            ("../x", "/%2E%2E/x"),
            ("a..", "/a.."),
            ("/a", "/%/a"),
            ("a//", "/a/%/%"),
            ("%", "/%25"),
            ("zookeeper", "/%7Aookeeper"),
            ("x/zookeeper", "/x/zookeeper"),
            (".lockkeeper/x", "/%2Elockkeeper/x"),
            ("pool/locks", "/pool/%6Cocks"),
            ("locks", "/locks"),
            ("a/x-lock-0000000001", "/a/%78-lock-0000000001"),
        ] {
            assert_eq!(path(given), expected);
            assert_eq!(name(expected).as_deref(), Some(given));
        }
        for foreign in [
            "/a/locks", "/%2e", "/%61", "/%F0", "/a/%", "x", "/a//b", "/%4",
        ] {
            let read = name(foreign);
            assert!(read.is_none() || path(&read.unwrap_or_default()) == foreign);
        }
        assert_eq!(name("/a/locks"), None);
        assert_eq!(name("/%61"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_two_names_have_one_path(given in "[a%/.é🔒\u{E000}\u{FFFF}]{1,8}", other in "[a%/.é🔒]{1,8}") {
            let there = path(&given);
            proptest::prop_assert_eq!(name(&there), Some(given.clone()));
            proptest::prop_assert!(given == other || path(&other) != there);
            proptest::prop_assert!(!flat(&given).contains('/'));
            proptest::prop_assert!(given == other || flat(&other) != flat(&given));
        }
    }
}
