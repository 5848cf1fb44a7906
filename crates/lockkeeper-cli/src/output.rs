//! What verbs print: text for people, JSON for programs.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

/// Prints a line, or several.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    // A reader of a pipe, as of `watch`, wants each line when it is printed.
    out.flush()
}

/// Prints a value as one line of JSON.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(&serde_json::to_string(value)?)
}

/// A table in the program's style.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    let arrangement = match table.width() {
        // Serial lines and some containers do not know how wide they are.
        Some(0) => ContentArrangement::Disabled,
        _ => ContentArrangement::Dynamic,
    };
    table
        .load_style(NOTHING)
        .set_content_arrangement(arrangement)
        .set_header(header.iter().copied());
    table
}

/// A table as text: no empty margins, as plain tools cut them.
pub fn table_text(table: &Table) -> String {
    let lines = table.lines();
    let lines = lines.map(|line| {
        line.strip_prefix(' ')
            .unwrap_or(&line)
            .trim_end()
            .to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Text of others, such as the name of their program, without what could play tricks on a terminal.
pub fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// A duration as people say it, to about three digits: `250ms`, `4.2s`, `3m 20s`, `5h 7m`, `2d 3h`.
pub fn human(d: Duration) -> String {
    let seconds = d.as_secs();
    match seconds {
        0 => format!("{}ms", d.as_millis()),
        1..10 => format!("{:.1}s", d.as_millis() as f64 / 1000.0),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// How long ago a wall-clock time was; zero if it lies ahead.
pub fn ago(time: SystemTime) -> Duration {
    time.elapsed().unwrap_or_default()
}

/// Milliseconds since 1970.
pub fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, millis)
}

/// Whole milliseconds.
pub fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// The time of day, in UTC.
pub fn time_of_day(time: SystemTime) -> String {
    let ms = unix_ms(time) % 86_400_000;
    let (s, ms) = (ms / 1000, ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}Z", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
        assert_eq!(plain("naïve ✓"), "naïve ✓");
    }

    #[test]
    fn durations_read_well() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (4_210, "4.2s"),
            (59_999, "59s"),
            (200_000, "3m 20s"),
            (18_420_000, "5h 7m"),
            (183_600_000, "2d 3h"),
        ] {
            assert_eq!(human(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn times_of_day_are_utc() {
        let time = UNIX_EPOCH + Duration::from_millis(86_400_000 * 3 + 3_723_004);
        assert_eq!(time_of_day(time), "01:02:03.004Z");
    }
}
