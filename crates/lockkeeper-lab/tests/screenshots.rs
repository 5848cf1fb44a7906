//! Pictures of the page for the documentation: `cargo xtask screenshots` writes docs/lab/*.png.

mod common;

#[allow(dead_code, reason = "the tests of the page use the rest of it")]
#[path = "lab_page/browser.rs"]
mod browser;
#[allow(dead_code, reason = "the tests of the page use the rest of it")]
#[path = "lab_page/http.rs"]
mod http;
#[allow(dead_code, reason = "the tests of the page use the rest of it")]
#[path = "lab_page/lab.rs"]
mod lab;

use std::path::Path;
use std::process::Command;

use serde_json::json;

use browser::{Browser, DESKTOP, Options, PHONE};
use common::Place;
use lab::{ENDED, Lab};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab");
    std::fs::create_dir_all(&folder).expect("docs/lab");
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    {
        let browser = Browser::new(&Options {
            height: 1000,
            ..DESKTOP
        });
        browser.open(&lab.url("/#/lab/15"));
        browser.until("document.querySelector('#run')");
        browser.click("#run");
        browser.until(ENDED);
        browser.eval("document.querySelector('#theme').click()");
        let [_, bottom] = place_of(&browser, "#side-ours");
        save(
            &browser,
            &folder.join("light.png"),
            [0.0, bottom + 24.0],
            0.75,
        );
        browser.eval("document.querySelector('#theme').click()");
        browser.eval("document.querySelector('#language').click()");
        browser.until(ENDED);
        let [_, bottom] = place_of(&browser, "#side-ours");
        save(
            &browser,
            &folder.join("dark-zh.png"),
            [0.0, bottom + 24.0],
            0.75,
        );
        browser.is_content();
    }
    let browser = Browser::new(&PHONE);
    browser.open(&lab.url("/#/lab/15"));
    browser.until(ENDED);
    let [top, _] = place_of(&browser, "#verdict");
    let [_, bottom] = place_of(&browser, "#side-naive");
    save(
        &browser,
        &folder.join("phone.png"),
        [top - 16.0, bottom + 16.0],
        1.0,
    );
}

/// Saves what is from `top` to `bottom`, so much smaller.
fn save(browser: &Browser, file: &Path, [top, bottom]: [f64; 2], scale: f64) {
    let width = browser.eval("innerWidth");
    let height = bottom - top;
    let clip = json!({ "x": 0, "y": top, "width": width, "height": height, "scale": scale });
    let shot = json!({ "clip": clip, "captureBeyondViewport": true });
    let shot = browser.chromium("Page.captureScreenshot", shot);
    let bytes = decoded(shot["data"].as_str().expect("a picture"));
    std::fs::write(file, bytes).expect("it is written");
    let smaller = Command::new("pngquant")
        .args(["--force", "--ext", ".png", "128"])
        .arg(file)
        .status();
    let smaller = smaller.expect("pngquant makes pictures small: apt-get install pngquant");
    assert!(smaller.success(), "pngquant: {smaller}");
    let size = std::fs::metadata(file).expect("it is there").len();
    assert!(size < 200_000, "{file:?} has {size} bytes");
}

/// Where an element begins and ends.
fn place_of(browser: &Browser, selector: &str) -> [f64; 2] {
    let script = format!(
        "(({{ top, bottom }}) => [top + scrollY, bottom + scrollY])(document.querySelector('{selector}').getBoundingClientRect())"
    );
    let place = browser.eval(&script);
    [0, 1].map(|at| place[at].as_f64().expect("a number"))
}

/// What base64 text stands for.
fn decoded(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes().take_while(|letter| *letter != b'=') {
        let value = LETTERS.iter().position(|known| *known == letter);
        bits = bits << 6 | value.expect("base64") as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}
