//! Pictures of the page for the documentation.

use std::path::Path;

use serde_json::json;

use crate::browser::{Browser, DESKTOP, Options, PHONE};
use crate::common::Place;
use crate::lab::Lab;

const ENDED: &str = "!document.querySelector('#verdict').hidden";

#[test]
#[ignore = "writes docs/lab/*.png; run it when the page has changed"]
fn screenshots() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab");
    std::fs::create_dir_all(&folder).expect("docs/lab");
    let place = Place::new();
    let lab = Lab::start(&mut place.lockkeeper(&[]));
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
        save(&browser, &folder.join("light.png"), 1280, 1150);
        browser.eval("document.querySelector('#theme').click()");
        browser.eval("document.querySelector('#language').click()");
        browser.until(ENDED);
        save(&browser, &folder.join("dark-zh.png"), 1280, 1150);
        browser.is_content();
    }
    let browser = Browser::new(&PHONE);
    browser.open(&lab.url("/#/lab/15"));
    browser.until(ENDED);
    browser.eval("document.querySelector('#verdict').scrollIntoView()");
    save(&browser, &folder.join("phone.png"), 360, 740);
}

fn save(browser: &Browser, file: &Path, width: u32, height: u32) {
    let top = browser.eval("scrollY");
    let clip = json!({ "x": 0, "y": top, "width": width, "height": height, "scale": 1 });
    let shot = json!({ "clip": clip, "captureBeyondViewport": true, "optimizeForSpeed": false });
    let shot = browser.chromium("Page.captureScreenshot", shot);
    let bytes = decoded(shot["data"].as_str().expect("a picture"));
    assert!(bytes.len() < 200_000, "{file:?} has {} bytes", bytes.len());
    std::fs::write(file, bytes).expect("it is written");
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
