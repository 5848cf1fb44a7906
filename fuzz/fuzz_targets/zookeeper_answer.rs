//! Bytes from a server never panic, and make no reader allocate far more than was sent.
#![cfg_attr(fuzzing, no_main)]

use lockkeeper::store::zookeeper::fuzz_answer;

fn check(data: &[u8]) {
    fuzz_answer(data);
}

lockkeeper_fuzz::target!(
    check,
    &[
        "",
        "\0\0\0\u{1}\0\0\0\u{2}ab",
        "\u{7f}\u{7f}\u{7f}\u{7f}",
        "{\"claim\":\"00000000-0000-0000-0000-000000000001:1\"}",
        "\0\0\0\u{f}\0\0\0\0\0\0\0\0\u{1}a",
    ]
);
