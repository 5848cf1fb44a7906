//! The laboratory: every naive lock fails, ours holds, and neither is taken for granted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper_lab::chapters::{self, CHAPTERS, Chapter, Ended, Outcome, Stage};
use lockkeeper_lab::scene::update::Update;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use common::{bare, finish, until};

fn stage() -> Stage {
    Stage {
        program: common::PROGRAM.into(),
    }
}

/// Plays a chapter, and answers what was told meanwhile as well.
fn played(chapter: &Chapter) -> (Outcome, Vec<Update>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (updates, mut told) = tokio::sync::mpsc::unbounded_channel();
    let outcome = runtime.block_on(chapters::run(chapter, &stage(), &updates));
    drop(updates);
    let told = std::iter::from_fn(|| told.try_recv().ok()).collect();
    (outcome.unwrap(), told)
}

fn number(side: &Value, key: &str) -> i64 {
    side[key]
        .as_i64()
        .unwrap_or_else(|| panic!("no {key} in {side:#}"))
}

/// What a chapter's figures have to say beyond its verdict: naive, ours.
fn check_figures(id: i64, naive: &Value, ours: &Value) {
    let [naive_of, ours_of] = [naive, ours].map(|side| move |key: &str| number(side, key));
    // Ours is judged by the books and by the clock.
    if id != 7 && !(16..=18).contains(&id) && ours.get("overlap_ms").is_some() {
        assert_eq!(ours_of("overlap_ms"), 0, "chapter {id}: {ours:#}");
    }
    for key in ["oversold", "lost_updates"] {
        if ours.get(key).is_some() {
            assert_eq!(ours_of(key), 0, "chapter {id}: {ours:#}");
        }
    }
    match id {
        1 | 2 => {
            assert_eq!((naive_of("sold"), naive_of("oversold")), (2, 1));
            assert_eq!((ours_of("sold"), ours_of("left")), (1, 0));
        }
        3 | 4 => {
            assert!(naive_of("waited_ms") >= 3_000, "{naive:#}");
            assert!(ours_of("waited_ms") < 3_000, "{ours:#}");
            assert!(ours_of("sold") > naive_of("sold"));
        }
        5 | 6 | 9..=12 | 14 => {
            assert!(naive_of("overlap_ms") > 0, "{naive:#}");
            assert!(naive_of("lost_updates") > 0, "{naive:#}");
        }
        7 => assert!(
            naive_of("commands") > 3 * ours_of("commands"),
            "{naive:#} {ours:#}"
        ),
        8 => assert!(naive_of("waited_ms") >= 2_000, "{naive:#}"),
        // One sale before the server died; ours sold before, with one down, and with two up again.
        13 => assert_eq!((naive_of("sold"), ours_of("sold")), (1, 3)),
        15 => {
            assert_eq!((naive_of("refused"), naive_of("lost_updates")), (0, 1));
            assert_eq!((ours_of("refused"), ours_of("sold")), (1, 1));
        }
        16 => {
            assert!(naive_of("sold") > 1, "{naive:#}");
            assert_eq!((ours_of("sold"), ours_of("left")), (1, 0));
        }
        17 => {
            assert!(naive_of("left") < 0, "{naive:#}");
            assert_eq!((ours_of("sold"), ours_of("left")), (5, 0));
        }
        18 => {
            assert_eq!(
                (naive_of("requests"), ours_of("requests")),
                (20_000, 20_000)
            );
            assert!(naive_of("sold") > 5_000, "{naive:#}");
            assert_eq!((ours_of("sold"), ours_of("left")), (5_000, 0));
        }
        19 => {
            assert!(naive_of("overlap_ms") > 0, "{naive:#}");
            assert_eq!((naive_of("sold"), naive_of("lost_updates")), (2, 1));
            assert_eq!(ours_of("sold"), 1);
            // The naive holder finds out after the next one was granted the lock, ours before.
            assert!(naive_of("told_ms") > 0 && ours_of("told_ms") < 0);
        }
        _ => {}
    }
    if id == 11 {
        // The naive holder finds out when it is too late, ours before its lease ends.
        assert!(naive_of("learned_ms") > 0 && ours_of("learned_ms") < 0);
    }
}

/// The whole of it, as in continuous integration.
#[test]
fn every_naive_lock_fails_and_ours_holds() {
    let report = finish(&mut bare(&["lab", "run", "--all", "--json"]));
    let told = report.json();
    println!("{told:#}");
    let played = told["chapters"].as_array().unwrap();
    assert_eq!(played.len(), CHAPTERS.len());
    for (chapter, played) in CHAPTERS.iter().zip(played) {
        assert_eq!(played["id"], chapter.id);
        assert_eq!(played["title"], chapter.title.en.as_ref());
        assert!(played["seconds"].as_f64().unwrap() > 0.0, "{played:#}");
        let (naive, ours) = (&played["naive"], &played["ours"]);
        assert_eq!(naive["failed"], true, "{played:#}");
        assert_eq!(ours["held"], true, "{played:#}");
        check_figures(chapter.id.into(), naive, ours);
    }
    report.code(0);
}

#[test]
fn the_chapters_are_those_of_the_story() {
    let ids: Vec<u8> = CHAPTERS.iter().map(|chapter| chapter.id).collect();
    let all: Vec<u8> = (1..=19).collect();
    assert_eq!(ids, all);
    for chapter in CHAPTERS {
        assert!(std::ptr::eq(chapters::find(chapter.slug).unwrap(), chapter));
        for text in [&chapter.title, &chapter.why, &chapter.naive.about] {
            assert!(!text.en.is_empty() && !text.zh.is_empty());
            assert!(text.en.is_ascii(), "{text:?}");
        }
        assert!(!chapter.why.zh.is_ascii());
    }
    let listed = finish(&mut bare(&["lab", "list"])).code(0).out();
    assert_eq!(listed.lines().count(), CHAPTERS.len(), "{listed}");
    let listed = finish(&mut bare(&["lab", "list", "--json"])).code(0).json();
    assert_eq!(listed["chapters"][8]["name"], "no-renewal");
}

#[test]
fn one_chapter_by_its_name_in_words_and_with_a_timeline() {
    let text = finish(&mut bare(&["lab", "run", "no-lock"])).code(0).out();
    for part in [
        "1  No lock, two instances",
        "naive: no lock at all: FAILED",
        "ours: Lockkeeper: HELD",
        "2 were handed out, and there was only 1.",
        "▓ two at once",
        "sold 2 · oversold 1",
        "sold 1 · oversold 0",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    // No terminal, no colour.
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn an_unknown_chapter_is_told_where_to_look() {
    for unknown in ["99", "no-such"] {
        let done = finish(&mut bare(&["lab", "run", unknown]));
        done.code(2).says("lockkeeper lab list");
    }
    // Nothing is chosen.
    finish(&mut bare(&["lab", "run"])).code(2);
}

#[test]
fn without_its_server_a_chapter_is_not_run_and_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bare(&["lab", "run", "no-expiry", "--json"]);
    let done = finish(command.env("PATH", folder.path())).code(69);
    let told = &done.json()["chapters"][0];
    let reason = told["not_run"].as_str().unwrap();
    assert!(reason.contains("install"), "{reason}");
    assert!(told.get("naive").is_none() && told.get("ours").is_none());
    let mut command = bare(&["lab", "run", "3"]);
    let text = finish(command.env("PATH", folder.path())).code(69).out();
    assert!(
        text.contains("NOT RUN: redis-server is not in PATH"),
        "{text}"
    );
    let mut command = bare(&["lab", "run", "cut-off-session"]);
    let text = finish(command.env("PATH", folder.path())).code(69).out();
    assert!(
        text.contains("NOT RUN: ZooKeeper is not installed"),
        "{text}"
    );
    assert!(text.contains("install zookeeper"), "{text}");
    // What needs none runs.
    let mut command = bare(&["lab", "run", "local-mutex"]);
    finish(command.env("PATH", folder.path())).code(0);
}

/// A lock that holds is not called a failure because it stands on the naive side, and one that fails is not said to
/// hold because it stands on ours.
#[test]
fn the_verdict_is_computed_from_what_happened() {
    for name in ["no-lock", "no-expiry", "no-renewal", "paused-holder"] {
        let chapter = chapters::find(name).unwrap();
        let swapped = Chapter {
            naive: chapter.ours.clone(),
            ours: chapter.naive.clone(),
            ..chapter.clone()
        };
        let (outcome, told) = played(&swapped);
        assert!(!outcome.as_it_should());
        let json = outcome.to_json();
        assert_eq!(json["naive"]["failed"], false, "{name}: {json:#}");
        assert_eq!(json["ours"]["held"], false, "{name}: {json:#}");
        let Some(Update::ChapterEnded {
            naive_failed: false,
            ours_held: false,
            ..
        }) = told.last()
        else {
            panic!("{name}: {told:?}");
        };
    }
}

/// What is told while it happens, put together, is what is there at the end.
#[test]
fn updates_add_up_to_the_timeline() {
    let (outcome, told) = played(chapters::find("paused-holder").unwrap());
    let Ended::Played { naive, ours } = &outcome.ended else {
        panic!("it is played");
    };
    assert!(outcome.as_it_should(), "{outcome:?}");
    let mut sides = Vec::new();
    for update in &told {
        match update {
            Update::SideStarted { .. } => sides.push((Vec::new(), 0, 0)),
            Update::Span(span) => {
                let spans = &mut sides.last_mut().unwrap().0;
                if span.id < spans.len() {
                    spans[span.id] = span.clone()
                } else {
                    spans.push(span.clone())
                }
            }
            Update::Mark(_) => sides.last_mut().unwrap().1 += 1,
            Update::Step(_) => sides.last_mut().unwrap().2 += 1,
            _ => {}
        }
    }
    assert_eq!(sides.len(), 2);
    for ((spans, marks, steps), played) in sides.iter().zip([naive, ours]) {
        let timeline = &played.timeline;
        assert_eq!(*marks, timeline.marks.len());
        assert_eq!(*steps, timeline.steps.len());
        assert_eq!(spans.len(), timeline.spans.len());
        for (span, last) in spans.iter().zip(&timeline.spans) {
            assert_eq!(
                (span.lane, span.from, span.doing),
                (last.lane, last.from, last.doing)
            );
            assert!(span.to.is_none() || span.to == last.to, "{span:?} {last:?}");
        }
        // Serialisable as the page needs it.
        let json = serde_json::to_value(timeline).unwrap();
        assert_eq!(json["lanes"][0]["name"], "A");
    }
    let tokens = ours.timeline.spans.iter().filter_map(|span| span.token);
    assert!(tokens.collect::<Vec<_>>().is_sorted());
}

/// Processes and folders of a laboratory that uses this folder for what is temporary.
struct Traces {
    folder: tempfile::TempDir,
}

impl Traces {
    fn new() -> Traces {
        Traces {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn start(&self, chapter: &str) -> Child {
        let mut command = bare(&["lab", "run", chapter]);
        command
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        command.spawn().unwrap()
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Whatever runs with our folder in its environment, but for the laboratory itself.
    fn processes(&self, lab: Option<&Child>) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let output = Command::new("ps")
            .args(["-eo", "pid=,stat="])
            .output()
            .unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        let mine = listed.lines().filter_map(|line| {
            let (pid, stat) = line.trim().split_once(' ')?;
            let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let is_lab = lab.is_some_and(|lab| lab.id().to_string() == pid);
            (environment.contains(folder) && !is_lab && !stat.trim().starts_with('Z'))
                .then(|| line.to_owned())
        });
        mine.collect()
    }
}

/// Ctrl-C, wherever it comes: no process stays, stopped or not, and no folder.
#[test]
fn an_interrupted_chapter_leaves_nothing_behind() {
    for (chapter, delay) in [
        ("paused-holder", 300),
        ("paused-holder", 1_200),
        ("flash-sale", 900),
        ("quorum-down", 1_500),
        // While the servers are being started.
        ("cut-off-session", 700),
        // While instances of the shop are being started.
        ("flash-sale", 0),
        ("flash-sale", 60),
        ("flash-sale", 120),
        ("flash-sale", 180),
    ] {
        let traces = Traces::new();
        let mut lab = traces.start(chapter);
        until("it has begun", || {
            !traces.files().is_empty() && traces.processes(Some(&lab)).len() > 1
        });
        std::thread::sleep(Duration::from_millis(delay));
        // As a terminal does, to all of its group.
        killpg(Pid::from_raw(lab.id().cast_signed()), Signal::SIGINT).unwrap();
        assert_eq!(lab.wait().unwrap().code(), Some(130));
        let mut said = String::new();
        lab.stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(said, "lockkeeper: interrupted\n", "{chapter} {delay}");
        until("every process is gone", || {
            traces.processes(None).is_empty()
        });
        assert_eq!(traces.files(), Vec::<PathBuf>::new());
    }
}

/// Killed, it cannot tidy up; its processes go with it all the same, also one that is stopped.
#[test]
fn a_killed_laboratory_leaves_no_process_behind() {
    let traces = Traces::new();
    let mut lab = traces.start("paused-holder");
    until("an actor is stopped", || {
        traces
            .processes(Some(&lab))
            .iter()
            .any(|process| process.ends_with('T') || process.contains(" T"))
    });
    lab.kill().unwrap();
    lab.wait().unwrap();
    until("every process is gone", || {
        traces.processes(None).is_empty()
    });
}
