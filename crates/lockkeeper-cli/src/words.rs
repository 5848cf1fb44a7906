//! What `run` says to people, and what both programs say alike: each text in every language.
//!
//! Names, URLs and errors in them come from others, so [`notes`](crate::notes) makes a line of them harmless. Errors of the library
//! are English in every language.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use lockkeeper::LossCause;
use lockkeeper::store::{Holder, LockInfo};

use crate::lang::Text;
use crate::output::{ago, human, lasted, plain, who};

// Setting up

/// Something that endangers locks in how the store is set up; its own words are the library's.
pub fn warning(about: &str) -> Text {
    Text::made(format!("warning: {about}"), format!("警告：{about}"))
}

/// A password stands in an argument. A variable is the `better` place, with what is to be written instead.
pub fn password_in_an_argument(better: &Text) -> Text {
    Text::made(
        format!(
            "everyone on this machine can see the password in an argument; put the URL into the variable {}",
            better.en
        ),
        format!(
            "参数里的密码，这台机器上的人都看得见；请把 URL 写进环境变量 {}",
            better.zh
        ),
    )
}

/// A variable to use instead of an option.
pub fn instead_of(variable: &str, option: &str) -> Text {
    Text::made(
        format!("{variable} instead of {option}"),
        format!("{variable}，不要用 {option}"),
    )
}

/// The store's locks keep no other process out.
pub const ONLY_ONE_PROCESS: Text = Text::new(
    "this store's locks hold within one process only: nobody else is kept out",
    "这个存储的锁只在一个进程内有效：挡不住其他进程",
);

/// `lab` and `shop` are another program, which is not there; this gets it.
pub fn program_not_found(program: &str, get: &str) -> Text {
    Text::made(
        format!(
            "{program} is neither beside this program nor on the path; in the project's folder this gets it: {get}"
        ),
        format!("本程序旁边和 PATH 里都找不到 {program}；在项目目录里运行这条命令即可安装：{get}"),
    )
}

// Waiting

/// The store is not up yet.
pub fn waiting_for_store(error: &impl Display) -> Text {
    Text::made(
        format!("waiting for the store: {error}"),
        format!("正在等待存储：{error}"),
    )
}

/// The store cannot grant the lock now.
pub fn still_waiting(name: &str, why: &str) -> Text {
    let name = plain(name);
    Text::made(
        format!("still waiting for {name}: {why}"),
        format!("仍在等待 {name}：{why}"),
    )
}

/// What the library says keeps the lock from being granted.
pub fn waiting_because(name: &str, obstacle: &impl Display) -> Text {
    let name = plain(name);
    Text::made(
        format!("waiting for {name}: {obstacle}"),
        format!("正在等待 {name}：{obstacle}"),
    )
}

/// Others hold the lock.
pub fn waiting_for_holder(name: &str, held: &Text, store: &str) -> Text {
    let (name, store) = (plain(name), plain(store));
    Text::made(
        format!("waiting for {name}, {} (store {store})", held.en),
        format!("正在等待 {name}，它{}（存储 {store}）", held.zh),
    )
}

/// Nobody is known to hold the lock, and perhaps too few nodes are there to tell; each is described by the library.
pub fn waiting_for_nodes(name: &str, nodes: &[String]) -> Text {
    let name = plain(name);
    let told = |separator: &str| -> String {
        let nodes = nodes.iter();
        nodes.map(|node| format!("{separator}{node}")).collect()
    };
    Text::made(
        format!("waiting for {name}{}", told("; ")),
        format!("正在等待 {name}{}", told("；")),
    )
}

/// The command above this one holds the lock.
pub fn waits_for_itself(name: &str) -> Text {
    Text::made(
        format!(
            "this runs inside the command that holds {name:?}, which would have to end first; give the inner lock another \
             name, or say --no-wait or --wait"
        ),
        format!(
            "本命令就运行在持有 {name:?} 的命令里面，而那个命令要先结束才行；请给里面的锁换个名字，或者加上 --no-wait 或 --wait"
        ),
    )
}

/// The holder of a lock, and for how long it has held; `None` if nobody does.
pub fn held(info: &LockInfo) -> Option<Text> {
    let holder = info.holders.first()?;
    let since_zh = match holder.since {
        Some(since) => format!(" {}", human_zh(ago(since))),
        None => "的时间未知".to_owned(),
    };
    let (others_en, others_zh) = match info.holders.len() - 1 {
        0 => (String::new(), String::new()),
        others => (
            format!(", and by {others} more"),
            format!("，另有 {others} 个持有者"),
        ),
    };
    let by = who(&holder.process, holder.label.as_ref());
    // A gap stands between Chinese and what is not.
    let by_zh = by_zh(holder);
    let gap = |is_latin: bool| if is_latin { " " } else { "" };
    let before = gap(by_zh.starts_with(|c: char| c.is_ascii()));
    let after = gap(by_zh.ends_with(|c: char| c.is_ascii()));
    Some(Text::made(
        format!("held by {by} for {}{others_en}", lasted(holder.since)),
        format!("由{before}{by_zh}{after}持有，已持有{since_zh}{others_zh}"),
    ))
}

/// The lock could not be had within this time, or at once; who holds it, if that is known.
pub fn busy(name: &str, limit: Option<Duration>, held: Option<&Text>, store: &str) -> Text {
    let store = plain(store);
    let (en, zh) = match limit.filter(|limit| !limit.is_zero()) {
        Some(limit) => (
            format!("the lock {name:?} was not free within {}", human(limit)),
            format!("等了 {}，锁 {name:?} 一直被占用", human_zh(limit)),
        ),
        None => (
            format!("the lock {name:?} is not free"),
            format!("锁 {name:?} 已被占用"),
        ),
    };
    let (held_en, held_zh) = match held {
        Some(held) => (format!("; it is {}", held.en), format!("，{}", held.zh)),
        None => (String::new(), String::new()),
    };
    Text::made(
        format!("{en}{held_en} (store {store})"),
        format!("{zh}{held_zh}（存储 {store}）"),
    )
}

// Running the command

/// Nothing watches over the command.
pub fn no_guardian(error: &io::Error) -> Text {
    Text::made(
        format!("the guardian could not be started: {error}"),
        format!("守护进程无法启动：{error}"),
    )
}

/// The command was not started.
pub const LOST_BEFORE_THE_START: Text = Text::new(
    "the lock was lost before the command could be started",
    "命令还没启动，锁就丢了",
);

/// The command was not started; perhaps it is a line of shell.
pub fn cannot_run(program: &str, error: &io::Error, is_shell: bool) -> Text {
    let (hint_en, hint_zh) = if is_shell {
        (
            "; for a line of shell, write --shell before the --",
            "；如果这是一行 shell 命令，请在 -- 之前写上 --shell",
        )
    } else {
        ("", "")
    };
    Text::made(
        format!("cannot run {program:?}: {error}{hint_en}"),
        format!("无法运行 {program:?}：{error}{hint_zh}"),
    )
}

/// Ctrl-Z reached the command.
pub const CONTINUED: Text = Text::new(
    "a stopped command cannot keep the lock; continued it",
    "命令停下就保不住锁；已让它继续运行",
);

/// The command reads a terminal that it does not have.
pub const WAITS_FOR_TERMINAL: Text = Text::new(
    "the command waits for the terminal, in the background, and keeps the lock",
    "命令在后台等待终端，锁仍由它持有",
);

/// Something other than Ctrl-Z stopped the command.
pub const STOPPED: Text = Text::new(
    "the command was stopped; it keeps the lock",
    "命令已被停止；锁仍由它持有",
);

/// Ctrl-Z reached us.
pub const NOT_STOPPING: Text = Text::new(
    "not stopping: the lock could not be renewed",
    "不能挂起：挂起之后就没法给锁续期了",
);

/// The command got TERM.
pub const ASKED_TO_END: Text = Text::new(
    "the lock is being lost; asked the command to end",
    "锁快要丢失；已要求命令结束",
);

/// The guardian died before the command.
pub const GUARDIAN_IS_GONE: Text = Text::new(
    "the guardian is gone; the command is still ended in time, but not if lockkeeper is killed as well",
    "守护进程已退出；命令仍会按时被结束，除非 lockkeeper 也被杀",
);

/// The guardian alone is left.
pub const LOCKKEEPER_IS_GONE: Text = Text::new(
    "lockkeeper is gone; ending the command that it ran",
    "lockkeeper 已退出；正在结束它运行的命令",
);

/// The command got KILL.
pub const KILLED: Text = Text::new(
    "the lock is lost and the command still ran; killed it",
    "锁已丢失，而命令还在运行；已将它杀死",
);

// The end

/// Why a lock was lost.
pub fn cause(cause: &LossCause) -> Text {
    let zh = match cause {
        LossCause::Broken(broken) => {
            let reason = plain(&broken.reason);
            return Text::made(format!("broken: {reason}"), format!("被强制释放：{reason}"));
        }
        LossCause::NotRenewed => "没有及时续期",
        LossCause::LeaseOver => "固定租期已到",
        LossCause::NotHeld => "存储里已经没有这次持有",
        other => return other.to_string().into(),
    };
    Text::made(cause.to_string(), zh.to_owned())
}

/// The lock was lost while the command ran, which has ended unless it is stuck.
pub fn lost(name: &str, why: Option<&Text>, is_stuck: bool) -> Text {
    let (why_en, why_zh) = match why {
        Some(why) => (format!(" ({})", why.en), format!("（{}）", why.zh)),
        None => (String::new(), String::new()),
    };
    let (command_en, command_zh) = if is_stuck {
        (
            "which could not be killed and is still there",
            "命令杀不掉，还在那里",
        )
    } else {
        ("which has ended", "命令已结束")
    };
    Text::made(
        format!("the lock {name:?} was lost{why_en} under the command, {command_en}"),
        format!("锁 {name:?} 在命令运行期间丢失{why_zh}，{command_zh}"),
    )
}

/// The store did not take the lock back, or it is not known whether it did.
pub fn not_released(is_known: bool, lease: Duration, error: &impl Display) -> Text {
    let (so_en, so_zh) = if is_known {
        ("was not released and", "没有释放")
    } else {
        ("may not be released, and then", "可能没有释放，那样的话")
    };
    Text::made(
        format!(
            "the lock {so_en} frees itself within {}: {error}",
            human(lease)
        ),
        format!("锁{so_zh}，会在 {}内自动空出来：{error}", human_zh(lease)),
    )
}

/// A process and what its caller calls its claim, as [`who`] has it.
fn by_zh(holder: &Holder) -> String {
    let process = &holder.process;
    let (host, program) = (plain(&process.host), plain(&process.program));
    let program = match (process.pid, program.as_str()) {
        (0, "") => "未知程序".to_owned(),
        (0, "a Redisson client") => "Redisson 客户端".to_owned(),
        (0, "another client") => "其他客户端".to_owned(),
        (0, program) => program.to_owned(),
        (pid, program) => format!("{program}[{pid}]"),
    };
    let by = match host.as_str() {
        "" => format!("未知主机上的 {program}"),
        host => format!("{host} 上的 {program}"),
    };
    match &holder.label {
        Some(label) => format!("{by} {:?}", plain(label.as_str())),
        None => by,
    }
}

/// As [`human`].
fn human_zh(d: Duration) -> String {
    let seconds = d.as_secs();
    match seconds {
        0 => format!("{} 毫秒", d.as_millis()),
        1..10 => format!("{:.1} 秒", d.as_millis() as f64 / 1000.0),
        10..60 => format!("{seconds} 秒"),
        60..3_600 => format!("{} 分 {} 秒", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} 小时 {} 分", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} 天 {} 小时", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_testkit::listed::unlisted;

    use super::*;

    /// What stands for the words of others has none of either language. [`held`] is tested with a real holder.
    #[test]
    fn each_text_is_in_its_language() {
        assert_eq!(unlisted(include_str!("words.rs")), [""; 0]);
        let (x, text, second) = ("7", Text::from("7"), Duration::from_secs(1));
        let error = io::Error::other(x);
        let texts = [
            warning(x),
            password_in_an_argument(&text),
            instead_of(x, x),
            ONLY_ONE_PROCESS,
            program_not_found(x, x),
            waiting_for_store(&x),
            still_waiting(x, x),
            waiting_because(x, &x),
            waiting_for_holder(x, &text, x),
            waiting_for_nodes(x, &[x.to_owned()]),
            waits_for_itself(x),
            busy(x, None, None, x),
            busy(x, Some(second), Some(&text), x),
            no_guardian(&error),
            LOST_BEFORE_THE_START,
            cannot_run(x, &error, true),
            CONTINUED,
            WAITS_FOR_TERMINAL,
            STOPPED,
            NOT_STOPPING,
            ASKED_TO_END,
            GUARDIAN_IS_GONE,
            LOCKKEEPER_IS_GONE,
            KILLED,
            cause(&LossCause::NotRenewed),
            cause(&LossCause::LeaseOver),
            cause(&LossCause::NotHeld),
            lost(x, None, false),
            lost(x, Some(&text), true),
            not_released(true, second, &x),
            not_released(false, second, &x),
        ];
        for text in &texts {
            assert!(text.en.is_ascii(), "{text:?}");
            let chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
            assert!(text.zh.contains(chinese), "{text:?}");
        }
    }

    #[test]
    fn durations_are_as_exact_in_chinese() {
        for (ms, english, chinese) in [
            (0, "0ms", "0 毫秒"),
            (4_210, "4.2s", "4.2 秒"),
            (59_999, "59s", "59 秒"),
            (200_000, "3m 20s", "3 分 20 秒"),
            (18_420_000, "5h 7m", "5 小时 7 分"),
            (183_600_000, "2d 3h", "2 天 3 小时"),
        ] {
            let time = Duration::from_millis(ms);
            assert_eq!(
                (human(time), human_zh(time)),
                (english.into(), chinese.into())
            );
        }
    }
}
