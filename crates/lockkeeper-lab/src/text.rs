//! Words in the languages of our readers.

pub use lockkeeper_cli::lang::Text;

/// A number with its thousands apart, which both languages write alike.
pub fn grouped(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        let shown = [0, 999, 1_000, -12_682, 5_000_000].map(|number: i64| grouped(number));
        assert_eq!(shown, ["0", "999", "1,000", "-12,682", "5,000,000"]);
    }
}
