//! The files of the page, in the program itself.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// A file of the page.
#[derive(Debug)]
pub struct Asset {
    pub path: &'static str,
    kind: &'static str,
    content: &'static str,
}

impl IntoResponse for &'static Asset {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, self.kind)], self.content).into_response()
    }
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// A file of the folder `assets`, at the same place on the page.
macro_rules! asset {
    ($kind:ident, $name:literal) => {
        Asset {
            path: concat!("/", $name),
            kind: $kind,
            content: include_str!(concat!("assets/", $name)),
        }
    };
}

/// All of them.
pub static ALL: &[Asset] = &[
    Asset {
        path: "/",
        kind: HTML,
        content: include_str!("assets/index.html"),
    },
    asset!(IMAGE, "icon.svg"),
    asset!(STYLE, "style.css"),
    asset!(STYLE, "timeline.css"),
    asset!(STYLE, "locks.css"),
    asset!(SCRIPT, "early.js"),
    asset!(SCRIPT, "main.js"),
    asset!(SCRIPT, "dom.js"),
    asset!(SCRIPT, "words.js"),
    asset!(SCRIPT, "settings.js"),
    asset!(SCRIPT, "format.js"),
    asset!(SCRIPT, "feed.js"),
    asset!(SCRIPT, "model.js"),
    asset!(SCRIPT, "laboratory.js"),
    asset!(SCRIPT, "side.js"),
    asset!(SCRIPT, "figures.js"),
    asset!(SCRIPT, "timeline.js"),
    asset!(SCRIPT, "viewport.js"),
    asset!(SCRIPT, "signs.js"),
    asset!(SCRIPT, "legend.js"),
    asset!(SCRIPT, "locks.js"),
    asset!(SCRIPT, "histogram.js"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn content(path: &str) -> &'static str {
        let found = ALL.iter().find(|asset| asset.path == path);
        found.expect("it is there").content
    }

    fn has_words(key: &str) -> bool {
        content("/words.js").contains(&format!("\n  {key}: ["))
    }

    #[test]
    fn there_are_words_for_everything() {
        for asset in ALL {
            for (at, _) in asset.content.match_indices("t(\"") {
                let before = asset.content[..at].chars().next_back();
                let key = asset.content[at + 3..]
                    .split('"')
                    .next()
                    .unwrap_or_default();
                if !before.is_some_and(char::is_alphanumeric) {
                    assert!(has_words(key), "{key} in {}", asset.path);
                }
            }
        }
        // What a timeline can have in it, from where it is declared.
        let declared = include_str!("../scene/timeline.rs");
        for (name, signs) in [("Doing", false), ("MarkKind", true)] {
            let from = declared.split(&format!("pub enum {name} {{")).nth(1);
            let variants = from
                .and_then(|from| from.split('}').next())
                .unwrap_or_default();
            let variants = variants
                .lines()
                .filter_map(|line| line.trim().strip_suffix(','));
            let variants: Vec<String> = variants
                .filter(|line| !line.starts_with('/'))
                .map(snake)
                .collect();
            assert!(variants.len() > 3, "{variants:?}");
            for variant in &variants {
                let mark = format!("{variant}_mark");
                assert!(has_words(variant) || has_words(&mark), "{variant}");
                let sign = format!("\n  {variant}: {{");
                assert!(!signs || content("/signs.js").contains(&sign), "{variant}");
            }
        }
    }

    /// As it is in JSON.
    fn snake(name: &str) -> String {
        let mut snake = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.extend(letter.to_lowercase());
        }
        snake
    }

    #[test]
    fn nothing_comes_from_elsewhere_or_stands_inline() {
        for asset in ALL {
            let text = asset.content.replace("http://www.w3.org/", "");
            for word in [
                "http://",
                "https://",
                "//cdn",
                "<style",
                " onclick=",
                "style=\"",
            ] {
                assert!(!text.contains(word), "{word} in {}", asset.path);
            }
            // Text of others is never taken for markup.
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(word), "{word} in {}", asset.path);
            }
        }
    }
}
