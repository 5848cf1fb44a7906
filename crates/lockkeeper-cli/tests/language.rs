//! In which language the command speaks to people, and that programs do not notice.

mod common;

use common::{Done, Place, finish, for_ever, in_chinese};
use nix::sys::signal::Signal;
use serde_json::Value;

const HAN: std::ops::RangeInclusive<char> = '\u{4e00}'..='\u{9fff}';

/// Whether a text has Chinese in it.
fn is_chinese(text: &str) -> bool {
    text.contains(|c| HAN.contains(&c))
}

/// What standard error says, which is JSON.
fn told(done: &Done) -> Value {
    serde_json::from_str(&done.err()).unwrap_or_else(|e| panic!("{e}: {done:#?}"))
}

#[test]
fn the_environment_or_the_option_chooses_the_language() {
    let place = Place::new();
    let holder = place.hold(&["--label", "the job"], "x", &for_ever(":"));
    let busy = |args: &[&str]| {
        let args = [args, &["run", "--no-wait", "x", "--", "true"]].concat();
        place.lockkeeper(&args)
    };
    let english = "the lock \"x\" is not free; it is held by lockkeeper[";
    let chinese = "锁 \"x\" 已被占用，由 ";

    let by_lang = finish(in_chinese(&mut busy(&[]))).code(75).says(chinese);
    let err = by_lang.err();
    for part in [
        " 上的 lockkeeper[",
        "] \"the job\" 持有，已持有 ",
        "（存储 sqlite:",
    ] {
        assert!(err.contains(part), "no {part:?} in {err}");
    }
    finish(&mut busy(&[])).code(75).says(english);
    finish(&mut busy(&["--lang", "zh"])).code(75).says(chinese);
    let by_option = finish(in_chinese(&mut busy(&["--lang", "en"])));
    assert!(!is_chinese(&by_option.code(75).says(english).err()));
    // The first of the variables decides.
    let mut mixed = busy(&[]);
    finish(in_chinese(&mut mixed).env("LC_MESSAGES", "C"))
        .code(75)
        .says(english);
    finish(mixed.env("LC_ALL", "zh_TW.UTF-8"))
        .code(75)
        .says(chinese);

    let mut waits = place.lockkeeper(&["run", "--wait", "100ms", "x", "--", "true"]);
    finish(in_chinese(&mut waits))
        .code(75)
        .says("等了 100 毫秒，锁 \"x\" 一直被占用，由 ");
    let unknown = finish(&mut busy(&["--lang", "fr"])).code(2);
    assert!(
        unknown.err().contains("[possible values: en, zh]"),
        "{unknown:?}"
    );
    holder.signal(Signal::SIGTERM);
    holder.done().code(143);
}

#[test]
fn a_loss_is_told_in_chinese() {
    let place = Place::new();
    let broken = place.hold(&["--lang", "zh"], "x", &for_ever(":"));
    place.done(&["break", "x", "--reason", "演习"]).code(0);
    let err = broken.done().code(76).err();
    let last = err.lines().last().expect("a line");
    assert_eq!(
        last,
        "lockkeeper: 锁 \"x\" 在命令运行期间丢失（被强制释放：演习），命令已结束"
    );
    // The guardian is a process of its own.
    let place = Place::new();
    let killed = place.hold(&["--lang", "zh"], "y", &for_ever(":"));
    killed.signal(Signal::SIGKILL);
    let err = killed.done().err();
    assert_eq!(err, "lockkeeper: lockkeeper 已退出；正在结束它运行的命令\n");
}

#[test]
fn what_went_wrong_before_the_command_is_told_in_chinese() {
    let place = Place::new();
    let done = |args: &[&str]| finish(in_chinese(&mut place.lockkeeper(args)));
    done(&["run", "x", "--", "no such program"]).code(127).says(
        "无法运行 \"no such program\"：No such file or directory (os error 2)；如果这是一行 shell",
    );
    done(&["run", "--store", "redis://:pw@host", "x", "--", "true"])
        .code(2)
        .says("请把 URL 写进环境变量 LOCKKEEPER_STORE，不要用 --store");
    // What the library says is as it is.
    done(&["run", "--store", "nothing:x", "x", "--", "true"])
        .code(2)
        .says("invalid store URL");
    let mut memory = place.lockkeeper(&["run", "x", "--", "echo", "mine"]);
    let memory = finish(in_chinese(&mut memory).env("LOCKKEEPER_STORE", "memory:")).code(0);
    assert_eq!(memory.out(), "mine\n");
    assert!(memory.err().contains("只在一个进程内有效"), "{memory:?}");
    // Not in two languages at once: its tables are in English.
    let ls = done(&["ls", "--store", "redis://:pw@host"]).code(2);
    assert!(!is_chinese(&ls.err()), "{ls:?}");
    let program = place.copy_of_lockkeeper("lockkeeper");
    let mut lab = std::process::Command::new(program);
    finish(in_chinese(
        lab.args(["lab", "list"]).env("PATH", "/usr/bin:/bin"),
    ))
    .code(127)
    .says("都找不到 lockkeeper-lab");
}

#[test]
fn json_and_exit_codes_are_the_same_in_both_languages() {
    let place = Place::new();
    // Without what is another's in each run.
    let report = |done: Done| {
        let mut report = told(&done);
        for changes in ["token", "owner", "waited_ms", "held_ms"] {
            report[changes] = Value::Null;
        }
        if report["command"].is_object() {
            report["command"]["pid"] = Value::Null;
        }
        (done.0.status.code(), done.out(), report)
    };
    for (args, code) in [
        (&["run", "x", "--", "sh", "-c", "echo mine; exit 5"][..], 5),
        (&["run", "x", "--", "/no/such/program"], 127),
        (
            &["run", "--store", "redis://:pw@host", "x", "--", "true"],
            2,
        ),
        (&["run", "--store", "memory:", "x", "--", "true"], 0),
    ] {
        let args = [&["--json"], args].concat();
        let english = report(place.done(&args).code(code));
        let chinese = report(finish(in_chinese(&mut place.lockkeeper(&args))));
        let by_option = report(place.done(&[&["--lang", "zh"], &args[..]].concat()));
        assert!(!is_chinese(&english.2.to_string()), "{english:?}");
        assert_eq!(chinese, english);
        assert_eq!(by_option, english);
    }
    for (args, code) in [
        (&["ls", "--store", "redis://:pw@host"][..], 2),
        (&["ls"], 0),
        (&["show", "x"], 0),
    ] {
        let args = [&["--json"], args].concat();
        let english = place.done(&args).code(code);
        let chinese = finish(in_chinese(&mut place.lockkeeper(&args))).code(code);
        assert_eq!(chinese.err(), english.err());
        assert_eq!(chinese.out(), english.out());
    }
}
