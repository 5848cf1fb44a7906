//! `lockkeeper lab` alone: the page.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use lockkeeper_lab::chapters::Stage;
use lockkeeper_lab::page::{Opened, PageOptions, serve};
use lockkeeper_lab::words;

use crate::shop::{address, failure};
use lockkeeper_cli::exit::Failure;
use lockkeeper_cli::lang::Lang;
use lockkeeper_cli::notes::say;
use lockkeeper_cli::output::{print, print_json};
use lockkeeper_cli::signals::Signals;
use lockkeeper_cli::store::{StoreArgs, check};

#[derive(Debug, clap::Args)]
pub struct PageArgs {
    /// Where to listen: a port of this machine (0 takes a free one), or an address and a port [default: 7420, or
    /// a free one]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Open the page in your browser
    #[arg(long)]
    open: bool,
}

impl PageArgs {
    /// Whether any was given.
    pub fn any(&self) -> bool {
        self.listen.is_some() || self.open
    }
}

/// Serves the page until a signal ends it.
pub async fn run(args: &PageArgs, store: &StoreArgs) -> Result<u8, Failure> {
    if let Some(url) = &store.store {
        check(url)?;
    }
    let lang = store.lang();
    let options = PageOptions {
        listen: args.listen,
        store: store.store.clone(),
        stage: Stage::here().map_err(failure)?,
    };
    if args.listen.is_some_and(|listen| !listen.ip().is_loopback()) {
        say(words::PAGE_FOR_OTHERS.get(lang));
    }
    let mut signals = Signals::listen()?;
    let stop = async {
        signals.next_fatal().await;
    };
    let opened = |opened: &Opened| {
        if store.json {
            print_json(opened)?
        } else {
            print(words::page_is_open(&opened.url).get(lang))?
        }
        if args.open {
            open(&opened.url, lang);
        }
        Ok(())
    };
    serve(options, opened, stop).await.map_err(failure)?;
    Ok(0)
}

/// Starts a browser, if there is one; the page can be opened by hand as well.
fn open(url: &str, lang: Lang) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        // It ends once the browser has the address; somebody has to take note of that.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => say(words::no_browser(opener, &error, url).get(lang)),
    }
}
