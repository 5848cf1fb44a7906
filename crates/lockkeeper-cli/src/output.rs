//! What verbs print: text for people, JSON for programs.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use lockkeeper::Label;
use lockkeeper::store::Process;
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

/// Prints a line, or several. Our own may have control characters; text of others goes through [`plain`] before.
pub fn print(text: &str) -> io::Result<()> {
    let text = &text.replace(is_hidden, "\u{fffd}");
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
    print(&json(value)?)
}

/// A value as one line of JSON, in which what could play tricks on a terminal is written as `\\u202e`.
pub fn json(value: &impl Serialize) -> io::Result<String> {
    let text = serde_json::to_string(value)?;
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // Only in strings are there any but plain characters.
        if deceives(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                safe += &format!("\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    Ok(safe)
}

/// A table in the program's style.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.iter().copied());
    // Serial lines and some containers do not know how wide they are.
    if let Some((Width(columns), _)) = terminal_size_of(io::stdout()) {
        table.set_width(columns);
    }
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
    text.replace(deceives, "\u{fffd}")
}

/// A process and what its caller calls its claim. A label is quoted, so that it cannot pass for what stands around it.
pub fn who(process: &Process, label: Option<&Label>) -> String {
    let process = plain(&process.to_string());
    match label {
        Some(label) => format!("{process} {:?}", plain(label.as_str())),
        None => process,
    }
}

/// How many columns of a terminal a text takes: ideographs and what is as wide as they are take two.
pub fn columns(text: &str) -> usize {
    text.chars().map(|c| if is_wide(c) { 2 } else { 1 }).sum()
}

/// Whether a character is an ideograph, or as wide as one.
pub fn is_wide(c: char) -> bool {
    matches!(
        c,
        // Hangul jamo, ideographs with their punctuation and kana, Hangul, compatibility forms.
        '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}'
        // Full width forms, pictures, further ideographs.
        | '\u{fe30}'..='\u{fe6f}' | '\u{ff01}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}'
    )
}

/// What stands where something is not known.
pub const UNKNOWN: &str = "unknown";

/// A number, or that it is not known.
pub fn or_unknown(number: Option<u64>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |number| number.to_string())
}

/// For how long something has been so since this wall-clock time.
pub fn lasted(since: Option<SystemTime>) -> String {
    since.map_or_else(|| "an unknown time".to_owned(), |since| human(ago(since)))
}

/// The beginning of a text that fits into so many columns of a terminal.
pub fn cut(text: &str, columns: usize) -> String {
    // Ideographs take two; what takes one of the others leaves some room.
    let width = |c: char| if c.is_ascii() { 1 } else { 2 };
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = text.chars().take_while(|&c| {
        let fits = width(c) <= left;
        left = left.saturating_sub(width(c));
        fits
    });
    fits.chain(['…']).collect()
}

/// Whether a character steers the terminal, or makes text look like another.
fn deceives(c: char) -> bool {
    c.is_control() || is_hidden(c)
}

/// Whether a character changes the order of others, or cannot be seen.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        // Soft hyphen, Arabic letter mark, Hangul fillers, Mongolian separator.
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}'
        // Zero width, marks of direction, ends of lines and paragraphs, embeddings and overrides, isolates.
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        // Byte order mark, interlinear annotations, shorthand and musical controls, tags.
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
    )
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
        assert_eq!(plain("naïve ✓ 订单 שלום"), "naïve ✓ 订单 שלום");
        for c in [
            '\u{7f}',
            '\u{9b}',
            '\u{200e}',
            '\u{200f}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{2028}',
            '\u{2029}',
            '\u{200b}',
            '\u{2060}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            assert_eq!(plain(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
    }

    #[test]
    fn a_label_cannot_pass_for_what_stands_around_it() {
        let process = Process::new("vm", 7, "a");
        assert_eq!(who(&process, None), "a[7] on vm");
        let label = Label::new("x\" for 9d \u{202e}").expect("a label");
        let shown = who(&process, Some(&label));
        assert_eq!(shown, "a[7] on vm \"x\\\" for 9d \u{fffd}\"");
    }

    #[test]
    fn text_is_cut_to_the_room_there_is() {
        assert_eq!(cut("backup", 6), "backup");
        assert_eq!(cut("backups", 6), "backu…");
        assert_eq!(cut("订单号码", 8), "订单号码");
        assert_eq!(cut("订单号码", 6), "订单…");
    }

    #[test]
    fn an_ideograph_takes_two_columns() {
        for (text, expected) in [("", 0), ("█ ms", 4), ("超卖", 4), ("（a，b）", 8)] {
            assert_eq!(columns(text), expected, "{text}");
        }
    }

    #[test]
    fn json_says_the_same_without_steering_the_terminal() {
        let text = "a\u{202e}b\u{9b}c\u{e0041}d \"\\ é\n";
        let safe = json(&text).expect("writes");
        assert_eq!(safe, r#""a\u202eb\u009bc\udb40\udc41d \"\\ é\n""#);
        assert_eq!(serde_json::from_str::<String>(&safe).expect("reads"), text);
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
