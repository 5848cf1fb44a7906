//! A name never panics, and one that is accepted is kept byte for byte within the promised bounds.
#![cfg_attr(fuzzing, no_main)]

use lockkeeper::{MAX_NAME_BYTES, Name};

fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let fits = (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    match Name::new(text) {
        Ok(name) => {
            assert!(fits, "{text:?} was accepted");
            assert_eq!(&*name, text);
        }
        Err(error) => {
            assert!(!fits, "{text:?} was refused");
            let shown = error.to_string();
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
        }
    }
}

lockkeeper_fuzz::target!(
    check,
    &[
        "orders/42",
        "{tag}:x",
        "'; DROP TABLE locks; --",
        "naïve ✓",
        "\u{7f}",
        "\u{85}",
        "\0",
        "../../etc/passwd",
    ]
);
