//! `lockkeeper lab`: experiments in which a naive lock fails and ours holds.

mod page;

use std::io::IsTerminal;

use clap::Subcommand;
use lockkeeper_lab::chapters::{self, CHAPTERS, Chapter, Ended, Outcome, Played, Stage};
use lockkeeper_lab::scene::drawing;
use lockkeeper_lab::scene::figures::{Figure, Unit};
use serde_json::{Value, json};

use lockkeeper_cli::exit::{Failure, INTERNAL, UNAVAILABLE, USAGE, signaled};
use lockkeeper_cli::output::{plain, print, print_json};
use lockkeeper_cli::signals::Signals;
use lockkeeper_cli::store::{self, StoreArgs};

/// A naive lock held, or ours did not.
const UNEXPECTED: u8 = 1;
/// How wide text is.
const WIDTH: usize = 92;

/// See locks fail, and ours hold, with real processes and real servers
///
/// Without a verb: in a browser, live, and beside it the locks of a store.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    page: page::PageArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Runs chapters: each is played with a naive lock and with ours
    ///
    /// Exits with 0 only if every naive lock failed and every one of ours held.
    #[command(arg = store::unused())]
    Run {
        /// Which, by number or name; `lockkeeper lab list` has them
        #[arg(value_name = "CHAPTER", required_unless_present = "all")]
        chapters: Vec<String>,
        /// All of them, in order
        #[arg(long, conflicts_with = "chapters")]
        all: bool,
    },
    /// Lists the chapters
    #[command(arg = store::unused())]
    List,
}

/// Runs `lockkeeper lab`.
pub async fn run(args: &Args, store: &StoreArgs) -> Result<u8, Failure> {
    let json = store.json;
    let Some(verb) = &args.verb else {
        return page::run(&args.page, store).await;
    };
    if args.page.any() {
        let message = "--listen and --open are for the page: `lockkeeper lab` without a verb";
        return Err(Failure::new(USAGE, message));
    }
    match verb {
        Verb::List => list(json).map(|()| 0),
        Verb::Run { chapters, all } => {
            let chosen = match all {
                true => CHAPTERS.iter().collect(),
                false => chosen(chapters)?,
            };
            let mut signals = Signals::listen()?;
            tokio::select! {
                code = play(&chosen, json) => code,
                // What the chapter has started goes with its future.
                signal = signals.next_fatal() => Err(Failure::new(signaled(signal), "interrupted")),
            }
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Chapter>, Failure> {
    let find = |name: &String| {
        chapters::find(name).ok_or_else(|| {
            let message = format!("there is no chapter {name:?}; `lockkeeper lab list` has them");
            Failure::new(USAGE, message)
        })
    };
    names.iter().map(find).collect()
}

fn list(json: bool) -> Result<(), Failure> {
    if json {
        let chapters = CHAPTERS.iter().map(|chapter| {
            json!({
                "id": chapter.id,
                "name": chapter.slug,
                "title": chapter.title.en,
                "why": chapter.why.en,
                "missing": chapter.needs.missing().map(|text| text.en),
            })
        });
        let chapters: Vec<Value> = chapters.collect();
        return Ok(print_json(&json!({ "chapters": chapters }))?);
    }
    for chapter in CHAPTERS {
        let (id, slug, title) = (chapter.id, chapter.slug, &chapter.title.en);
        print(&format!("{id:2}  {slug:18}  {title}"))?;
    }
    Ok(())
}

/// Plays them one after the other, and answers the exit code.
async fn play(chapters: &[&Chapter], json: bool) -> Result<u8, Failure> {
    let stage = Stage::here().map_err(|error| Failure::new(INTERNAL, format!("{error:#}")))?;
    let mut code = 0;
    let mut outcomes = Vec::new();
    for chapter in chapters {
        if !json {
            print(&heading(chapter))?;
        }
        // Nobody follows it live here.
        let (updates, _) = tokio::sync::mpsc::unbounded_channel();
        let outcome = chapters::run(chapter, &stage, &updates).await;
        match &outcome {
            Ok(outcome) if outcome.as_it_should() => {}
            Ok(Outcome {
                ended: Ended::NotRun(_),
                ..
            }) => code = code.max(UNAVAILABLE),
            _ => code = code.max(UNEXPECTED),
        }
        if json {
            outcomes.push(match outcome {
                Ok(outcome) => outcome.to_json(),
                Err(error) => {
                    let (id, title) = (chapter.id, &chapter.title.en);
                    json!({ "id": id, "title": title, "error": format!("{error:#}") })
                }
            });
            continue;
        }
        match outcome {
            Ok(outcome) => print(&told(&outcome))?,
            Err(error) => {
                let error = plain(&format!("{error:#}"));
                print(&format!("   could not be played: {error}\n"))?;
            }
        }
    }
    if json {
        print_json(&json!({ "chapters": outcomes }))?;
    }
    Ok(code)
}

fn heading(chapter: &Chapter) -> String {
    let title = format!("{}  {}", chapter.id, chapter.title.en);
    format!("{title}\n\n{}\n", wrapped(&chapter.why.en, "   "))
}

fn told(outcome: &Outcome) -> String {
    match &outcome.ended {
        Ended::NotRun(reason) => format!("   NOT RUN: {}\n", reason.en),
        Ended::Played { naive, ours } => {
            let naive_word = match naive.verdict.held {
                true => "did not fail in this run",
                false => "FAILED",
            };
            let our_word = match ours.verdict.held {
                true => "HELD",
                false => "DID NOT HOLD",
            };
            format!(
                "{}{}   {:.1} s\n",
                side("naive", &outcome.locks[0].en, naive, naive_word),
                side("ours", &outcome.locks[1].en, ours, our_word),
                outcome.seconds
            )
        }
    }
}

fn side(name: &str, lock: &str, played: &Played, word: &str) -> String {
    let mut text = format!("   {name}: {lock}: {word}\n");
    for step in &played.timeline.steps {
        text += &wrapped(&format!("- {}", step.text.en), "     ");
    }
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    for line in drawing::draw(&played.timeline, color).lines() {
        text += &format!("     {line}\n");
    }
    for found in &played.verdict.found {
        text += &wrapped(&format!("→ {}", found.en), "     ");
    }
    let figures: Vec<String> = played.figures.0.iter().map(figure).collect();
    text + &wrapped(&figures.join(" · "), "     ") + "\n"
}

fn figure(figure: &Figure) -> String {
    let unit = match figure.measure.unit {
        Unit::Count => "",
        Unit::Ms => " ms",
    };
    format!("{} {}{unit}", figure.measure.label.en, figure.value)
}

/// Lines that are not too long, each with this before it. What follows a sign stays right of it.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = indent.to_owned();
    let hangs = text.starts_with(['-', '→']);
    let indent = format!("{indent}{}", if hangs { "  " } else { "" });
    for word in text.split(' ') {
        if line.chars().count() + word.chars().count() > WIDTH {
            lines += line.trim_end();
            lines.push('\n');
            line = indent.clone();
        }
        line += word;
        line.push(' ');
    }
    lines + line.trim_end() + "\n"
}
