//! One experiment a file: the story of a shop that oversells, and of the lock that it needs.
//!
//! A [`Chapter`] is a scene that is played twice, with a naive lock and with ours, and judged alike both times:
//! [`run`] tells what happens while it happens, and answers what came of it.

mod ch01_no_lock;
mod ch02_local_mutex;
mod ch03_no_expiry;
mod ch04_expire_later;
mod ch05_del_by_anyone;
mod ch06_get_then_del;
mod ch07_polling;
mod ch08_not_reentrant;
mod ch09_no_renewal;
mod ch10_renew_anyones;
mod ch11_expired_unlock;
mod ch12_fail_over;
mod ch13_quorum_down;
mod ch14_quorum_restart;
mod ch15_paused_holder;
mod ch16_family_reward;
mod ch17_goods;
mod ch18_flash_sale;
mod ch19_cut_off_session;
mod outcome;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::zookeeper;

use crate::scene::actor::{Actor, SOON};
use crate::scene::board::Updates;
use crate::scene::orders::Event;
use crate::scene::update::{Side, Update};
use crate::scene::{Lives, LockKind, Scene};
use crate::text::{Text, told};
use crate::words;

pub use outcome::{Ended, Outcome, Played};

/// How often a proxy is looked at.
const POLL: Duration = Duration::from_millis(10);
/// What is in every request about the lock: its name.
const ABOUT_THE_LOCK: &str = "$12\r\ninventory001\r\n";

/// All of them, in order.
pub static CHAPTERS: &[Chapter] = &[
    ch01_no_lock::CHAPTER,
    ch02_local_mutex::CHAPTER,
    ch03_no_expiry::CHAPTER,
    ch04_expire_later::CHAPTER,
    ch05_del_by_anyone::CHAPTER,
    ch06_get_then_del::CHAPTER,
    ch07_polling::CHAPTER,
    ch08_not_reentrant::CHAPTER,
    ch09_no_renewal::CHAPTER,
    ch10_renew_anyones::CHAPTER,
    ch11_expired_unlock::CHAPTER,
    ch12_fail_over::CHAPTER,
    ch13_quorum_down::CHAPTER,
    ch14_quorum_restart::CHAPTER,
    ch15_paused_holder::CHAPTER,
    ch16_family_reward::CHAPTER,
    ch17_goods::CHAPTER,
    ch18_flash_sale::CHAPTER,
    ch19_cut_off_session::CHAPTER,
];

/// An experiment.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// Its number.
    pub id: u8,
    /// Its name on the command line and in addresses.
    pub slug: &'static str,
    /// Its title.
    pub title: Text,
    /// Why the naive lock fails, and what ours does.
    pub why: Text,
    /// What has to be installed.
    pub needs: Needs,
    /// The lock that fails.
    pub naive: LockKind,
    /// Ours.
    pub ours: LockKind,
    /// What happens.
    pub play: Play,
}

/// What happens in a scene, whichever lock is in it.
pub type Play = for<'a> fn(&'a mut Scene) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// What a chapter needs beside this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// `redis-server`.
    Redis,
    /// Java and ZooKeeper.
    ZooKeeper,
}

const NO_ZOOKEEPER: Text = Text::new(
    "ZooKeeper is not installed: Java in PATH and Debian's /usr/share/java/zookeeper.jar are needed (Debian, Ubuntu: apt \
     install zookeeper)",
    "没有安装 ZooKeeper：需要 PATH 中的 Java 和 Debian 的 /usr/share/java/zookeeper.jar（Debian、Ubuntu：apt install \
     zookeeper）",
);

impl Needs {
    /// What is missing on this machine, and how to get it.
    pub fn missing(self) -> Option<Text> {
        let found = || {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join("redis-server").is_file())
        };
        match self {
            Needs::Nothing => return None,
            Needs::Redis if found() => return None,
            Needs::ZooKeeper if zookeeper::is_installed() => return None,
            Needs::ZooKeeper => return Some(NO_ZOOKEEPER),
            Needs::Redis => {}
        }
        Some(Text::new(
            "redis-server is not in PATH; install it (Debian, Ubuntu: apt install redis-server; Fedora: dnf install \
             redis; macOS: brew install redis)",
            "PATH 中找不到 redis-server；请先安装（Debian、Ubuntu：apt install redis-server；Fedora：dnf install \
             redis；macOS：brew install redis）",
        ))
    }
}

/// Where chapters are played.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The program that becomes an actor with the verb [`VERB`](crate::scene::process::VERB).
    pub program: PathBuf,
}

impl Stage {
    /// Actors are this program. What killed ones of this user have left behind is removed first.
    ///
    /// # Errors
    /// When it cannot be found again.
    pub fn here() -> Result<Stage> {
        crate::scene::sweep();
        let program = std::env::current_exe().context(words::PROGRAM_IS_GONE)?;
        Ok(Stage { program })
    }
}

/// The chapter of this number or name.
pub fn find(name: &str) -> Option<&'static Chapter> {
    let number = name.parse().ok();
    CHAPTERS
        .iter()
        .find(|chapter| Some(chapter.id) == number || chapter.slug == name)
}

/// Plays a chapter: first with the naive lock, then with ours. Dropping the future ends it and leaves nothing behind.
///
/// # Errors
/// When the scene cannot be played to its end. What a lock does wrong is no error.
pub async fn run(chapter: &Chapter, stage: &Stage, updates: &Updates) -> Result<Outcome> {
    let begun = Instant::now();
    let id = chapter.id;
    let tell = |update| drop(updates.send(update));
    tell(Update::ChapterStarted { chapter: id });
    if let Some(reason) = chapter.needs.missing() {
        tell(Update::NotRun {
            chapter: id,
            reason: reason.clone(),
        });
        return Ok(Outcome::new(chapter, Ended::NotRun(reason), 0.0));
    }
    let naive = side(chapter, Side::Naive, stage, updates).await?;
    let ours = side(chapter, Side::Ours, stage, updates).await?;
    let seconds = begun.elapsed().as_secs_f64();
    tell(Update::ChapterEnded {
        chapter: id,
        naive_failed: !naive.verdict.held,
        ours_held: ours.verdict.held,
        seconds,
    });
    let ended = Ended::Played { naive, ours };
    Ok(Outcome::new(chapter, ended, seconds))
}

async fn side(
    chapter: &Chapter,
    side: Side,
    stage: &Stage,
    updates: &Updates,
) -> Result<Box<Played>> {
    let lock = match side {
        Side::Naive => &chapter.naive,
        Side::Ours => &chapter.ours,
    };
    let _ = updates.send(Update::SideStarted {
        side,
        lock: lock.about.clone(),
    });
    let mut scene = Scene::new(stage.program.clone(), lock.clone(), updates.clone())?;
    (chapter.play)(&mut scene)
        .await
        .map_err(|error| anyhow!(words::with_lock(&lock.about, &told(&error))))?;
    let (verdict, timeline) = scene.judge().await?;
    for figure in &scene.figures.0 {
        let _ = updates.send(Update::Figure(figure.clone()));
    }
    let _ = updates.send(Update::SideEnded {
        side,
        verdict: verdict.clone(),
        timeline: timeline.clone(),
    });
    Ok(Box::new(Played {
        verdict,
        figures: scene.figures,
        timeline,
    }))
}

/// A naive lock that is not renewed.
const fn naive(kind: &'static str, lease: Duration, about: Text) -> LockKind {
    LockKind {
        kind,
        lease,
        renewed: false,
        lives: Lives::Anywhere,
        about,
    }
}

/// A naive lock that is renewed.
const fn renewed(kind: &'static str, lease: Duration, about: Text) -> LockKind {
    LockKind {
        kind,
        lease,
        renewed: true,
        lives: Lives::Anywhere,
        about,
    }
}

/// A lock of ours, renewed.
const fn ours(lease: Duration) -> LockKind {
    LockKind {
        kind: "ours",
        lease,
        renewed: true,
        lives: Lives::Anywhere,
        about: Text::new("Lockkeeper", "Lockkeeper"),
    }
}

/// A lock of ours, renewed, on three servers.
const fn ours_on_quorum(lease: Duration) -> LockKind {
    LockKind {
        kind: "ours",
        lease,
        renewed: true,
        lives: Lives::Quorum,
        about: Text::new(
            "Lockkeeper on a quorum of three",
            "Lockkeeper，三节点多数派",
        ),
    }
}

/// Two instances sell the last piece at the same moment: both have read that there is one before either writes.
async fn last_piece(scene: &mut Scene) -> Result<()> {
    scene.stock(1).await?;
    let [mut a, mut b] = scene.actors(["A", "B"]).await?;
    scene
        .step(
            "One piece is left. A takes its lock, if it has one, and reads the stock.",
            "只剩一件。A 先加锁（如果有锁的话），再读取库存。",
        )
        .await;
    a.acquires(SOON).await?;
    a.reads().await?;
    scene
        .step(
            "Before A writes, a customer asks B.",
            "A 还没写回，另一位顾客的请求到了 B。",
        )
        .await;
    b.tries_to_sell().await?;
    scene
        .step(
            "A sells its piece, writes the stock back and lets go.",
            "A 卖出一件，写回库存，然后放手。",
        )
        .await;
    a.writes().await?;
    a.releases().await?;
    b.ends_its_sale(SOON).await.map(drop)
}

/// Waits until the actor says so, or its next request is held up on the way; whichever is first.
async fn until_held_up(
    actor: &mut Actor,
    proxy: &Proxy,
    said: impl Fn(&Event) -> bool,
) -> Result<()> {
    let end = Instant::now() + SOON;
    while proxy.stopped() == 0 {
        if actor.says_within(POLL, &said).await?.is_some() {
            break;
        }
        ensure!(
            Instant::now() < end,
            words::takes_too_long(
                actor.name(),
                &Text::new("to say or ask anything", "没有动静")
            )
        );
    }
    Ok(())
}

/// The URL of a server behind a proxy.
fn by_way_of(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}/0", proxy.port())
}
