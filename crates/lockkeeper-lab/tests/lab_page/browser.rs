//! A headless Chromium, driven by the WebDriver protocol.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_testkit::servers::ports::free_port;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{PATIENCE, until};
use crate::http::ask;

/// As the machines of tests are small, and browsers are not.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What keys are called in the protocol.
pub const TAB: char = '\u{e004}';
pub const ENTER: char = '\u{e007}';
pub const RIGHT: char = '\u{e014}';

/// How a browser is to be.
pub struct Options {
    pub width: u32,
    pub height: u32,
    /// Whether it is a phone.
    pub phone: bool,
    /// What it asks pages for.
    pub languages: &'static str,
    pub scale: u32,
}

pub const DESKTOP: Options = Options {
    width: 1280,
    height: 900,
    phone: false,
    languages: "en",
    scale: 1,
};

pub const PHONE: Options = Options {
    width: 360,
    height: 740,
    phone: true,
    languages: "en",
    scale: 2,
};

/// A browser with one window.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Browser {
    pub fn new(options: &Options) -> Browser {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        for program in ["chromium", "chromedriver"] {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
            assert!(
                found,
                "the tests of the page need {program}, which is not in PATH; on Debian: apt-get install chromium \
                 chromium-driver (cargo xtask test does that)"
            );
        }
        let profile = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            // Whatever it starts can then be ended with it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut browser = Browser {
            driver,
            port,
            session: String::new(),
            _profile: profile,
            _alone: alone,
        };
        until("chromedriver is ready", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
                && browser
                    .ask("GET", "/status", None)
                    .is_ok_and(|value| value["ready"] == true)
        });
        let session = browser.ask("POST", "/session", Some(capabilities(&browser, options)));
        let session = session.expect("a browser");
        let id = session["sessionId"].as_str().expect("a session");
        browser.session = format!("/session/{id}");
        browser
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, Value> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let path = format!("{}{path}", self.session);
        let headers = [("Content-Type", "application/json")];
        let answer = ask(self.port, method, &path, &headers, &body);
        let mut json = answer.json();
        let value = json["value"].take();
        match answer.status {
            200 => Ok(value),
            _ => Err(value),
        }
    }

    fn must(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        self.ask(method, path, body)
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn open(&self, url: &str) {
        self.must("POST", "/url", Some(json!({ "url": url })));
    }

    pub fn reload(&self) {
        self.must("POST", "/refresh", Some(json!({})));
    }

    /// What a script returns.
    pub fn eval(&self, script: &str) -> Value {
        let body = json!({ "script": format!("return {script}"), "args": [] });
        self.must("POST", "/execute/sync", Some(body))
    }

    /// Waits until a script returns something true, and answers it.
    #[track_caller]
    pub fn until(&self, script: &str) -> Value {
        let start = Instant::now();
        loop {
            match self.eval(script) {
                Value::Null | Value::Bool(false) => {}
                value => return value,
            }
            assert!(
                start.elapsed() < PATIENCE,
                "waited too long: {script}; the page says: {}",
                self.text("body")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The text of the first element of this kind, as a reader sees it.
    pub fn text(&self, selector: &str) -> String {
        let script = format!("document.querySelector({})?.innerText", json!(selector));
        let text = self.eval(&script);
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an element has this in its text.
    #[track_caller]
    pub fn until_says(&self, selector: &str, text: &str) {
        until(&format!("{text:?} in {selector}"), || {
            self.text(selector).contains(text)
        });
    }

    /// How many elements there are of a kind.
    pub fn count(&self, selector: &str) -> u64 {
        let script = format!("document.querySelectorAll({}).length", json!(selector));
        self.eval(&script).as_u64().unwrap_or(0)
    }

    /// Clicks where the element is, as a mouse does.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let using = json!({ "using": "css selector", "value": selector });
        let found = self.must("POST", "/element", Some(using));
        let ids = found.as_object().expect("an element");
        let id = ids.values().next().and_then(Value::as_str).expect("an id");
        self.must("POST", &format!("/element/{id}/click"), Some(json!({})));
    }

    /// Presses a key and lets it go.
    pub fn press(&self, key: char) {
        let key = key.to_string();
        let press = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": press }] });
        self.must("POST", "/actions", Some(actions));
    }

    /// What Chromium can do beside the protocol.
    pub fn chromium(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.must("POST", "/goog/cdp/execute", Some(body))
    }

    /// Checks that the console has no error and no warning, and nothing asked for attention.
    #[track_caller]
    pub fn is_content(&self) {
        let alert = self.ask("GET", "/alert/text", None);
        assert!(alert.is_err(), "an alert: {alert:?}");
        let log = self.must("POST", "/se/log", Some(json!({ "type": "browser" })));
        assert_eq!(log, json!([]), "the console");
    }
}

fn capabilities(browser: &Browser, options: &Options) -> Value {
    let Options {
        width,
        height,
        scale,
        ..
    } = options;
    let profile = browser._profile.path().display();
    let args = [
        "--headless".to_owned(),
        // Tests run as root at times, where its sandbox does not work.
        "--no-sandbox".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        "--disable-quic".to_owned(),
        "--no-first-run".to_owned(),
        "--disable-background-networking".to_owned(),
        "--disable-component-update".to_owned(),
        "--disable-sync".to_owned(),
        "--hide-scrollbars".to_owned(),
        format!("--user-data-dir={profile}"),
        format!("--window-size={width},{height}"),
        format!("--force-device-scale-factor={scale}"),
    ];
    let mut chromium = json!({
        "args": args,
        "prefs": { "intl.accept_languages": options.languages },
    });
    if options.phone {
        let metrics = json!({ "width": width, "height": height, "pixelRatio": scale });
        chromium["mobileEmulation"] = json!({ "deviceMetrics": metrics });
    }
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": chromium,
        "goog:loggingPrefs": { "browser": "ALL" },
    } } })
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.ask("DELETE", "", None);
        }
        let group = Pid::from_raw(self.driver.id().cast_signed());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.driver.wait();
    }
}
