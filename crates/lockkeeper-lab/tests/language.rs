//! In which language the laboratory and the shop speak in a terminal, and that programs do not notice.

mod common;

use std::path::Path;

use common::{Place, bare, finish, in_chinese};
use lockkeeper_lab::chapters::CHAPTERS;

const HAN: std::ops::RangeInclusive<char> = '\u{4e00}'..='\u{9fff}';

/// Whether a text has Chinese in it.
fn is_chinese(text: &str) -> bool {
    text.contains(|c| HAN.contains(&c))
}

#[test]
fn the_chapters_are_listed_in_either_language() {
    let chinese = finish(in_chinese(&mut bare(&["lab", "list"])))
        .code(0)
        .out();
    let english = finish(&mut bare(&["lab", "list"])).code(0).out();
    assert!(!is_chinese(&english), "{english}");
    for (chapter, line) in CHAPTERS.iter().zip(chinese.lines()) {
        assert!(line.ends_with(&*chapter.title.zh), "{line}");
        assert!(line.contains(chapter.slug), "{line}");
    }
    // The command hands down how it was called.
    let place = Place::new();
    for args in [
        &["--lang", "zh", "lab", "list"][..],
        &["lab", "--lang", "zh", "list"],
        &["lab", "list", "--lang=zh"],
    ] {
        let listed = finish(&mut place.lockkeeper(args)).code(0).out();
        assert_eq!(listed, chinese, "{args:?}");
    }
    let listed = finish(in_chinese(&mut place.lockkeeper(&["lab", "list"]))).code(0);
    assert_eq!(listed.out(), chinese);
    let mut overridden = place.lockkeeper(&["--lang", "en", "lab", "list"]);
    let listed = finish(in_chinese(&mut overridden)).code(0);
    assert_eq!(listed.out(), english);
}

#[test]
fn a_chapter_is_told_in_chinese() {
    let mut run = bare(&["lab", "run", "no-lock"]);
    let text = finish(in_chinese(&mut run)).code(0).out();
    for part in [
        "1  没有锁，两个实例",
        "   简易锁：完全不加锁：失守\n",
        "   我们的锁：Lockkeeper：守住\n",
        "- 只剩一件。A 先加锁（如果有锁的话），再读取库存。",
        "→ 只有 1 件，却给出了 2 件。",
        "▓ 同时持锁 · ",
        "█ 认为自己持有锁 · r 读取库存",
        "$ 卖出一件",
        "毫秒",
        "已售 2 · 超卖 1",
        "已售 1 · 超卖 0",
        "   用时 ",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    // No word of English is left beside names.
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    let long = words.filter(|word| word.len() > 2 && *word != "Lockkeeper");
    assert_eq!(long.collect::<Vec<_>>(), [""; 0], "{text}");
}

#[test]
fn what_is_wrong_is_told_in_chinese_and_to_programs_in_english() {
    let place = Place::new();
    for (args, code, said) in [
        (&["lab", "run", "no-such"][..], 2, "没有 \"no-such\" 这一章"),
        (
            &["lab", "--open", "list"],
            2,
            "--listen 和 --open 只用于页面",
        ),
        (
            &["shop", "load", "http://127.0.0.1:1"],
            69,
            "一个实例也连不上：http://127.0.0.1:1：连不上：",
        ),
        (
            &["shop", "load", "ftp://x"],
            2,
            "\"ftp://x\" 不是实例的地址",
        ),
        (
            &["shop", "reset", "--stock", "sqlite:/nowhere/shop.db"],
            69,
            "目录 \"/nowhere\" 不存在",
        ),
        (
            &["shop", "serve", "--lock", "nothing"],
            2,
            "没有 \"nothing\" 这种锁",
        ),
        (
            &[
                "--store",
                "redis://127.0.0.1:1/0",
                "shop",
                "serve",
                "--lock",
                "no-expiry",
                "--listen",
                "0",
            ],
            69,
            "简易锁的 Redis 服务器没有应答：",
        ),
    ] {
        let mut chinese = place.lab(args);
        finish(in_chinese(&mut chinese)).code(code).says(said);
        let args = [&["--json"], args].concat();
        let english = finish(&mut place.lab(&args)).code(code).err();
        let mut chinese = place.lab(&args);
        let chinese = finish(in_chinese(&mut chinese)).code(code).err();
        assert_eq!(chinese, english);
        assert!(!is_chinese(&english), "{english}");
    }
    let stock = format!("sqlite:{}", place.path("shop.db").display());
    let reset = ["shop", "reset", "--stock", &stock, "--stock-size", "7"];
    let done = finish(in_chinese(&mut place.lab(&reset))).code(0);
    assert_eq!(done.out(), "库存已补满：共 7 件\n");
}

/// The scene breaks off before it has a folder, and when its server does not start.
#[test]
fn why_a_scene_broke_off_is_told_in_chinese() {
    let place = Place::new();
    let server = place.path("redis-server");
    std::fs::write(&server, "#!/bin/sh\nexit 1\n").expect("it is written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&server, executable).expect("it is mine");
    for (chapter, name, value, said) in [
        (
            "1",
            "TMPDIR",
            Path::new("/nowhere"),
            "场景无法进行：没有临时目录可用：",
        ),
        (
            "3",
            "PATH",
            server.parent().expect("a folder"),
            "场景无法进行：锁为“Redis 的 SETNX 和 DEL”：无法启动私有的服务器：",
        ),
    ] {
        let mut run = bare(&["lab", "run", chapter]);
        let told = finish(in_chinese(&mut run).env(name, value)).code(1).out();
        assert!(told.contains(said), "no {said:?} in\n{told}");
    }
}

#[test]
fn json_is_the_same_in_both_languages() {
    let list = ["lab", "list", "--json"];
    let english = finish(&mut bare(&list)).code(0).out();
    let chinese = finish(in_chinese(&mut bare(&list))).code(0).out();
    assert_eq!(chinese, english);
    let folder = tempfile::tempdir().expect("a folder");
    let run = |lang: &str| {
        let mut run = bare(&["--lang", lang, "lab", "run", "3", "--json"]);
        finish(run.env("PATH", folder.path())).code(69).out()
    };
    assert_eq!(run("zh"), run("en"));
}
