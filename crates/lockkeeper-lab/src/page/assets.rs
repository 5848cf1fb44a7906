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

    #[test]
    fn nothing_comes_from_elsewhere_or_stands_inline() {
        for asset in ALL {
            let text = asset.content.replace("http://www.w3.org/", "");
            for word in ["http://", "https://", "//cdn", "<style", "onclick", "style=\""] {
                assert!(!text.contains(word), "{word} in {}", asset.path);
            }
            // Text of others is never taken for markup.
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!text.contains(word), "{word} in {}", asset.path);
            }
        }
    }
}
