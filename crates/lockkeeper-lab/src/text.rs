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

/// An error as people and programs are told it. A [`Text`] in it is in each language, and what others say is as it is.
pub fn told(error: &anyhow::Error) -> Text {
    // A context does not show what it is, only the whole error does.
    let context = error.downcast_ref::<Text>();
    let zh = error.chain().map(|part| {
        let en = part.to_string();
        let text = part.downcast_ref::<Text>().or(context);
        match text.filter(|text| text.en == en) {
            Some(text) => text.zh.to_string(),
            None => en,
        }
    });
    Text::made(format!("{error:#}"), zh.collect::<Vec<_>>().join("："))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn thousands_are_apart() {
        let shown = [0, 999, 1_000, -12_682, 5_000_000].map(|number: i64| grouped(number));
        assert_eq!(shown, ["0", "999", "1,000", "-12,682", "5,000,000"]);
    }

    #[test]
    fn an_error_is_told_in_each_language() {
        let text = || Text::new("no stock", "没有库存");
        assert_eq!(told(&anyhow!(text())), text());
        let others = anyhow!("b").context("a");
        assert_eq!(told(&others), Text::new("a: b", "a：b"));
        let about_others = others.context(text());
        let expected = Text::new("no stock: a: b", "没有库存：a：b");
        assert_eq!(told(&about_others), expected);
        let both = anyhow!(Text::new("full", "满了")).context(text());
        let expected = Text::new("no stock: full", "没有库存：满了");
        assert_eq!(told(&both), expected);
    }
}
