//! A duration never panics, and one that is accepted survives being written out in milliseconds.
#![cfg_attr(fuzzing, no_main)]

use lockkeeper::duration::parse;

fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse(text) {
        Ok(duration) => {
            if let Ok(millis) = u64::try_from(duration.as_millis()) {
                assert_eq!(parse(&format!("{millis}ms")), Ok(duration));
            }
        }
        Err(error) => assert!(error.to_string().len() < 1024, "an error is short"),
    }
}

lockkeeper_fuzz::target!(
    check,
    &[
        "500ms",
        "30s",
        "1h30m",
        " 2d ",
        "18446744073709551615ms",
        "18446744073709551615d",
        "1.5s",
        "-1s",
        "１s",
    ]
);
