//! Answers of a server never make the parser panic, recurse without end, or allocate more than their length warrants;
//! and they are read alike whether they come in one piece or in many.
#![cfg_attr(fuzzing, no_main)]

use lockkeeper::store::redis::read_answer;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// What a byte that came may cost: a list of the shortest values, in a vector that has just grown, and as text.
const COST: usize = 256;
/// What an error costs, however short the answer.
const ERROR: usize = 32 * 1024;

fn check(data: &[u8]) {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let _ = read_answer(data);
    let cost = HEAP.peak_usage() - before;
    let warranted = COST * data.len() + ERROR;
    assert!(cost <= warranted, "{cost} bytes for {}", data.len());

    let whole = pieces(data, data.len());
    // Where the pieces end depends on the input, so that a failure can be repeated.
    let sum = data
        .iter()
        .fold(7_usize, |sum, byte| sum * 31 % 1009 + *byte as usize);
    for size in [1, 1 + sum % 17] {
        assert_eq!(pieces(data, size), whole, "in pieces of {size}");
    }
}

/// The answers in `data` if it comes in pieces of this size, and how it ended: with an error, or with what is left.
fn pieces(data: &[u8], size: usize) -> (Vec<String>, Result<usize, String>) {
    let mut answers = Vec::new();
    let (mut start, mut end) = (0, 0);
    while end < data.len() {
        end = (end + size).min(data.len());
        loop {
            match read_answer(&data[start..end]) {
                Ok(Some((answer, length))) => {
                    assert!((1..=end - start).contains(&length), "it is {length} long");
                    answers.push(answer);
                    start += length;
                }
                Ok(None) => break,
                // What it says may show more of the input when more is there.
                Err(_) => return (answers, Err("no answer".to_string())),
            }
        }
    }
    (answers, Ok(data.len() - start))
}

lockkeeper_fuzz::target!(
    check,
    &[
        ":1731700000000000\r\n",
        "*4\r\n:0\r\n:-1\r\n:0\r\n:1731700000000000\r\n",
        "*2\r\n*2\r\n:1\r\n:2\r\n$7\r\na\r\nb\r\nc\r\n+OK\r\n",
        "-NOSCRIPT No matching script.\r\n_\r\n$-1\r\n*-1\r\n",
        ">3\r\n$7\r\nmessage\r\n+channel\r\n$1\r\n0\r\n",
        "%2\r\n+a\r\n:1\r\n+b\r\n#t\r\n~1\r\n,1.5e3\r\n(12345678901234567890\r\n",
        "=7\r\ntxt:abc\r\n!9\r\nERR wrong\r\n",
        "$9223372036854775807\r\n",
        "*9223372036854775807\r\n:1\r\n",
        "*2147483647\r\n",
        "%4611686018427387904\r\n",
        "=-1\r\n!-9223372036854775808\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
    ]
);
