//! The tree is the first page of the architecture: what a folder must not know is not named in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a folder or file of `src` must not name in its code. Comments may.
const RULES: &[(&str, &[&str])] = &[
    // What a store is asked is older than any store. A feature may leave parts of it out.
    ("store/api", IMPORTS_OF_STORES),
    ("store/api", &["common::", "record::", "catalog::"]),
    // What network stores share knows none of them.
    ("store/common", KINDS),
    ("store/common", &["memory", "super::sql", "store::sql"]),
    // The rules of a lock do no I/O, and know no store.
    ("store/record", KINDS),
    (
        "store/record",
        &[
            "memory",
            "common",
            "super::sql",
            "store::sql",
            "tokio",
            "std::fs",
            "std::net",
        ],
    ),
    // The reference model is the record and little else.
    ("store/memory.rs", KINDS),
    ("store/memory.rs", &["super::sql", "store::sql"]),
    // The quorum's decisions are as pure.
    ("store/quorum/protocol", &["redis", "tokio", "common"]),
    // A quorum stands on Redis, and Redis builds without it.
    (
        "store/redis",
        &[
            "store::quorum",
            "super::quorum",
            "store::redlock",
            "super::redlock",
        ],
    ),
    // What carries bytes knows neither who keeps it alive nor what is sent.
    (
        "store/redis/transport",
        &[
            "::shared",
            "::connection::",
            "::supervisor",
            "::setup",
            "::subscriptions",
            "::batch",
            "::scripts",
            "::cluster",
        ],
    ),
    // What SQL stores share names them as features only.
    (
        "store/sql",
        &[
            "store::postgres",
            "super::postgres",
            "store::mysql",
            "super::mysql",
            "mariadb",
        ],
    ),
    // A store knows no other, but for a quorum.
    (
        "store/sqlite",
        &[
            "redis",
            "redlock",
            "quorum",
            "postgres",
            "mysql",
            "zookeeper",
            "etcd",
            "memory::",
            "store::sql::",
        ],
    ),
    (
        "store/redis",
        &["sqlite", "postgres", "mysql", "zookeeper", "etcd"],
    ),
    (
        "store/quorum",
        &["sqlite", "postgres", "mysql", "zookeeper", "etcd"],
    ),
    (
        "store/postgres",
        &[
            "sqlite",
            "redis",
            "redlock",
            "quorum",
            "mysql",
            "zookeeper",
            "etcd",
        ],
    ),
    (
        "store/mysql",
        &[
            "sqlite",
            "redis",
            "redlock",
            "quorum",
            "postgres",
            "zookeeper",
            "etcd",
        ],
    ),
    (
        "store/zookeeper",
        &[
            "sqlite", "redis", "redlock", "quorum", "postgres", "mysql", "etcd",
        ],
    ),
    (
        "store/etcd",
        &[
            "sqlite",
            "redis",
            "redlock",
            "quorum",
            "postgres",
            "mysql",
            "zookeeper",
        ],
    ),
    // The engine stands over any store.
    ("engine", KINDS),
    ("engine", &["store::memory"]),
];

/// What the kinds of stores with a driver are called.
const KINDS: &[&str] = &[
    "redis",
    "redlock",
    "quorum",
    "sqlite",
    "postgres",
    "mysql",
    "mariadb",
    "zookeeper",
    "etcd",
];

/// How code names a kind of store to use something of it.
const IMPORTS_OF_STORES: &[&str] = &[
    "memory::",
    "redis::",
    "redlock::",
    "quorum::",
    "sql::",
    "sqlite::",
    "postgres::",
    "mysql::",
    "zookeeper::",
    "etcd::",
];

/// Where a text names what it must not: the number of the line, and the line.
fn offences<'a>(text: &'a str, forbidden: &[&str]) -> Vec<(usize, &'a str)> {
    let lines = text.lines().enumerate();
    let offends = |code: &str| forbidden.iter().any(|word| code.contains(word));
    lines
        .filter(|(_, line)| {
            let code = line.split("//").next().unwrap_or_default();
            offends(&code.to_ascii_lowercase())
        })
        .map(|(at, line)| (at + 1, line.trim()))
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// The files of a folder of `src`, or the one file that is named.
fn source(path: &str) -> Vec<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path);
    assert!(found.exists(), "{path} has moved");
    if found.is_file() {
        return vec![found];
    }
    files(&found)
}

#[test]
fn no_code_names_what_its_folder_must_not_know() {
    let mut found = Vec::new();
    for &(path, forbidden) in RULES {
        for file in source(path) {
            let text = std::fs::read_to_string(&file).expect("a text");
            for (line, code) in offences(&text, forbidden) {
                found.push(format!("{}:{line}: {code}", file.display()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "these name what they must not know:\n{}",
        found.join("\n")
    );
}

#[test]
fn common_does_not_mention_redis_even_in_comments() {
    for file in source("store/common") {
        let text = std::fs::read_to_string(&file).expect("a text");
        let spoken = text.to_ascii_lowercase().contains("redis");
        assert!(!spoken, "{} speaks of one of them", file.display());
    }
}

#[test]
fn the_check_sees_imports_and_paths_and_ignores_comments() {
    let text =
        "use crate::store::redis::X;\nlet y = ::Redis::y();\n// redis\nlet z = 1; // redis\n";
    let lines: Vec<usize> = offences(text, &["redis"]).iter().map(|o| o.0).collect();
    assert_eq!(lines, [1, 2]);
}

/// The modules of a folder, and which of them each names.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The code of a file, without comments and unit tests.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines();
    let lines = lines.map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// What comes directly after a path in a code: one name, or those of a list in braces.
fn names_after<'a>(code: &'a str, path: &str) -> Vec<&'a str> {
    let first_name = |text: &'a str| {
        let text = text.trim_start();
        let end = text.find(|c: char| c != '_' && !c.is_alphanumeric());
        &text[..end.unwrap_or(text.len())]
    };
    let mut names = Vec::new();
    for (at, _) in code.match_indices(path) {
        let rest = &code[at + path.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(first_name(rest));
            continue;
        };
        let mut depth = 0;
        names.push(first_name(list));
        for (at, sign) in list.char_indices() {
            match sign {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => names.push(first_name(&list[at + 1..])),
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Which module of the engine names which. What the engine's own `mod.rs` defines counts as the module `mod`, which names all.
fn engine_imports() -> Imports {
    let files = source("engine");
    let module = |file: &Path| {
        let name = file.file_stem().expect("a name");
        name.to_str().expect("a text").to_owned()
    };
    let modules: BTreeSet<String> = files.iter().map(|file| module(file)).collect();
    let mut imports = Imports::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a text");
        let (name, code) = (module(file), code(&text));
        let of = imports.entry(name.clone()).or_default();
        if name == "mod" {
            of.extend(modules.iter().filter(|other| **other != name).cloned());
            continue;
        }
        for path in ["super::", "crate::engine::"] {
            for named in names_after(&code, path) {
                let is_module = modules.contains(named);
                of.insert(if is_module { named } else { "mod" }.to_owned());
            }
        }
    }
    imports
}

/// The modules that are in a cycle, or between two cycles. All that name none of the others, or are named by none of them, go.
fn cycles(mut imports: Imports) -> Imports {
    loop {
        let before = imports.len();
        let left: BTreeSet<String> = imports.keys().cloned().collect();
        imports.retain(|_, named| named.iter().any(|other| left.contains(other)));
        let named: BTreeSet<String> = imports.values().flatten().cloned().collect();
        imports.retain(|name, _| named.contains(name));
        if imports.len() == before {
            return imports;
        }
    }
}

#[test]
fn modules_of_the_engine_import_one_way() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine");
    for file in source("engine") {
        assert_eq!(
            file.parent(),
            Some(&*folder),
            "a folder in the engine: have this test follow its paths"
        );
    }
    let cycles = cycles(engine_imports());
    assert!(cycles.is_empty(), "these name each other: {cycles:#?}");
}

/// The type that an `impl` block without a trait is for.
fn implemented(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if line.contains(" for ") {
        return None;
    }
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.find(|sign| {
            depth += i32::from(sign == '<') - i32::from(sign == '>');
            depth == 0
        });
        rest = &rest[end? + 1..];
    }
    let name = rest.split(|c: char| c != '_' && !c.is_alphanumeric());
    name.into_iter().find(|word| !word.is_empty())
}

/// Otherwise a call of a method would go where no import does.
#[test]
fn methods_of_the_engine_are_in_the_module_of_their_type() {
    for file in source("engine") {
        let text = std::fs::read_to_string(&file).expect("a text");
        let code = code(&text);
        for name in code.lines().filter_map(implemented) {
            let is_own = |kind: &str| names_after(&code, kind).contains(&name);
            assert!(
                is_own("struct ") || is_own("enum "),
                "{} has methods of {name}",
                file.display()
            );
        }
    }
}

#[test]
fn the_type_of_an_impl_block_is_read() {
    assert_eq!(implemented("impl Core {"), Some("Core"));
    assert_eq!(implemented("impl<T: Of<U>> Handle<T> {"), Some("Handle"));
    assert_eq!(implemented("impl Drop for Core {"), None);
}

#[test]
fn a_cycle_is_found_without_what_is_above_or_below_it() {
    let imports = [
        ("top", "left"),
        ("left", "right"),
        ("right", "left"),
        ("bottom", "std"),
        ("side", "bottom"),
    ];
    let imports = imports.map(|(one, other)| (one.to_owned(), [other.to_owned()].into()));
    let found = cycles(imports.into());
    assert_eq!(found.keys().collect::<Vec<_>>(), ["left", "right"]);
}

#[test]
fn names_after_a_path_are_read_from_lists_too() {
    let code = "use super::{loss, hold::{Hold, Lease}, lease};\nlet x = super::core::Core;";
    let names = names_after(code, "super::");
    assert_eq!(names, ["loss", "hold", "lease", "core"]);
}

/// Which feature compiles a folder of `src/store`.
const FEATURES: [(&str, &str); 7] = [
    ("etcd", "etcd"),
    ("mysql", "mysql"),
    ("postgres", "postgres"),
    ("quorum", "redlock"),
    ("redis", "redis"),
    ("sqlite", "sqlite"),
    ("zookeeper", "zookeeper"),
];

#[test]
fn every_folder_of_a_store_has_a_feature() {
    let shared = ["api", "common", "record", "sql"];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        let known = FEATURES.iter().any(|(store, _)| *store == name);
        if entry.path().is_dir() && !shared.contains(&name.as_str()) {
            assert!(known, "{name}: which feature, and what must it not name?");
        }
    }
}

#[test]
fn each_store_is_behind_its_feature() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(path).expect("a text")
    };
    let (stores, manifest) = (read("src/store/mod.rs"), read("Cargo.toml"));
    let lines: Vec<&str> = stores.lines().collect();
    for (folder, feature) in FEATURES {
        let module = format!("pub mod {folder};");
        let at = lines.iter().position(|line| *line == module);
        let before = &lines[..at.expect("a module")];
        let gate = format!("#[cfg(feature = \"{feature}\")]");
        let own = before.iter().rev().take_while(|line| !line.ends_with(';'));
        assert!(
            own.clone().any(|line| *line == gate),
            "{folder} is always built"
        );
        assert!(manifest.contains(&format!("\n{feature} = [")), "{feature}");
    }
}

#[test]
fn nothing_is_public_and_hidden() {
    for file in source(".") {
        let text = std::fs::read_to_string(&file).expect("a text");
        let hidden = text.contains("doc(hidden)");
        assert!(!hidden, "{}: put it behind `internals`", file.display());
    }
}
