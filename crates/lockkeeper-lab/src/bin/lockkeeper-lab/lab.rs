//! `lockkeeper lab`: experiments in which a naive lock fails and ours holds.

mod page;

use std::io::IsTerminal;

use clap::Subcommand;
use lockkeeper_lab::chapters::{self, CHAPTERS, Chapter, Ended, Outcome, Played, Stage};
use lockkeeper_lab::scene::drawing;
use lockkeeper_lab::{Text, told as error_told, words};
use serde_json::{Value, json};

use lockkeeper_cli::exit::{Failure, INTERNAL, UNAVAILABLE, USAGE, signaled};
use lockkeeper_cli::lang::Lang;
use lockkeeper_cli::output::{columns, is_wide, plain, print, print_json};
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
    let (json, lang) = (store.json, store.lang());
    let Some(verb) = &args.verb else {
        return page::run(&args.page, store).await;
    };
    if args.page.any() {
        return Err(Failure::new(USAGE, words::ONLY_FOR_THE_PAGE));
    }
    match verb {
        Verb::List => list(json, lang).map(|()| 0),
        Verb::Run { chapters, all } => {
            let chosen = if *all {
                CHAPTERS.iter().collect()
            } else {
                chosen(chapters)?
            };
            let mut signals = Signals::listen()?;
            tokio::select! {
                code = play(&chosen, json, lang) => code,
                // What the chapter has started goes with its future.
                signal = signals.next_fatal() => Err(Failure::new(signaled(signal), words::INTERRUPTED)),
            }
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Chapter>, Failure> {
    let find = |name: &String| {
        chapters::find(name).ok_or_else(|| Failure::new(USAGE, words::no_chapter(name)))
    };
    names.iter().map(find).collect()
}

fn list(json: bool, lang: Lang) -> Result<(), Failure> {
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
        let (id, slug, title) = (chapter.id, chapter.slug, chapter.title.get(lang));
        print(&format!("{id:2}  {slug:18}  {title}"))?;
    }
    Ok(())
}

/// Plays them one after the other, and answers the exit code.
async fn play(chapters: &[&Chapter], json: bool, lang: Lang) -> Result<u8, Failure> {
    let stage = Stage::here().map_err(|error| Failure::new(INTERNAL, error_told(&error)))?;
    let mut code = 0;
    let mut outcomes = Vec::new();
    for chapter in chapters {
        if !json {
            print(&heading(chapter, lang))?;
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
            Ok(outcome) => print(&told(&outcome, lang))?,
            Err(error) => {
                let text = words::not_played(&error_told(&error));
                print(&format!("   {}\n", plain(text.get(lang))))?;
            }
        }
    }
    if json {
        print_json(&json!({ "chapters": outcomes }))?;
    }
    Ok(code)
}

fn heading(chapter: &Chapter, lang: Lang) -> String {
    let title = format!("{}  {}", chapter.id, chapter.title.get(lang));
    format!("{title}\n\n{}\n", wrapped(chapter.why.get(lang), "   "))
}

fn told(outcome: &Outcome, lang: Lang) -> String {
    match &outcome.ended {
        Ended::NotRun(reason) => format!("   {}\n", words::not_run(reason).get(lang)),
        Ended::Played { naive, ours } => {
            let [naive_lock, our_lock] = &outcome.locks;
            let naive_title = words::naive(naive_lock, naive.verdict.held);
            let our_title = words::ours(our_lock, ours.verdict.held);
            format!(
                "{}{}   {}\n",
                side(&naive_title, naive, lang),
                side(&our_title, ours, lang),
                words::took(outcome.seconds).get(lang)
            )
        }
    }
}

fn side(title: &Text, played: &Played, lang: Lang) -> String {
    let mut text = format!("   {}\n", title.get(lang));
    for step in &played.timeline.steps {
        text += &wrapped(&format!("- {}", step.text.get(lang)), "     ");
    }
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    for line in drawing::draw(&played.timeline, color, lang).lines() {
        text += &format!("     {line}\n");
    }
    for found in &played.verdict.found {
        text += &wrapped(&format!("→ {}", found.get(lang)), "     ");
    }
    let last = played.figures.0.len().saturating_sub(1);
    let figures = played.figures.0.iter().enumerate().map(|(at, figure)| {
        let separator = if at < last { " · " } else { "" };
        words::figure(figure).get(lang).to_owned() + separator
    });
    text + &filled(figures, "     ", "     ") + "\n"
}

/// Lines that are not too long, each with this before it. What follows a sign stays right of it.
fn wrapped(text: &str, indent: &str) -> String {
    let hangs = text.starts_with(['-', '→']);
    let hanging = format!("{indent}{}", if hangs { "  " } else { "" });
    filled(pieces(text), indent, &hanging)
}

/// Pieces in lines that are not too long, with this before the first line and that before the others.
fn filled(pieces: impl IntoIterator<Item = impl AsRef<str>>, first: &str, others: &str) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    for piece in pieces {
        let piece = piece.as_ref();
        if columns(&line) + columns(piece.trim_end()) > WIDTH {
            lines += line.trim_end();
            lines.push('\n');
            line = others.to_owned();
        }
        line += piece;
    }
    lines + line.trim_end() + "\n"
}

/// What a line cannot end within: words with the space behind them, and ideographs with their punctuation.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut before) = (0, None);
    for (at, c) in text.char_indices() {
        if before.is_some_and(|before| may_part(before, c)) {
            pieces.push(&text[start..at]);
            start = at;
        }
        before = Some(c);
    }
    pieces.push(&text[start..]);
    pieces
}

/// Whether a line may end between two characters.
fn may_part(before: char, after: char) -> bool {
    let closes = |c| "，。、；：？！）》」”’…".contains(c);
    let opens = |c| "（《「“‘".contains(c);
    match before {
        ' ' => true,
        _ if after == ' ' || closes(after) || opens(before) => false,
        _ => is_wide(before) || is_wide(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_after_a_word_or_an_ideograph() {
        let words = "- ".to_owned() + &"word ".repeat(30);
        for line in wrapped(&words, "   ").lines() {
            assert!(
                columns(line) <= WIDTH && line.ends_with(" word"),
                "{line:?}"
            );
        }
        let sentence = "单台服务器上的锁（SET NX PX），一死就“没有”了。".repeat(12);
        let shown = wrapped(&format!("→ {sentence}"), "   ");
        assert!(shown.lines().count() > 3, "{shown}");
        for (at, line) in shown.lines().enumerate() {
            let begin = if at == 0 { "   → " } else { "     " };
            let rest = line.strip_prefix(begin).expect("it hangs");
            assert!(columns(line) <= WIDTH, "{line:?}");
            assert!(!rest.starts_with(['，', '。', '）', '”']), "{line:?}");
            assert!(!rest.ends_with(['（', '“']), "{line:?}");
        }
        let whole: String = shown.lines().map(|line| line.trim_start()).collect();
        assert_eq!(
            whole.replace(' ', ""),
            format!("→{sentence}").replace(' ', "")
        );
    }
}
