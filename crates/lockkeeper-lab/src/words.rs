//! What the laboratory and the shop say in a terminal: each text in every language. What a chapter tells is in its own file, and what a
//! lock does wrong in `scene::judge`: the page shows both as well.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::scene::figures::{Figure, Unit};
use crate::shop::load::{Books, Latency, Report, Tally};
use crate::text::Text;

// Chapters in the terminal

/// No chapter has this number or name.
pub fn no_chapter(name: &str) -> Text {
    Text::made(
        format!("there is no chapter {name:?}; `lockkeeper lab list` has them"),
        format!("没有 {name:?} 这一章；用 `lockkeeper lab list` 查看所有章节"),
    )
}

/// An option of the page beside a verb.
pub const ONLY_FOR_THE_PAGE: Text = Text::new(
    "--listen and --open are for the page: `lockkeeper lab` without a verb",
    "--listen 和 --open 只用于页面，也就是不带子命令的 `lockkeeper lab`",
);

/// A signal ended it.
pub const INTERRUPTED: Text = Text::new("interrupted", "已中断");

/// The scene broke off.
pub fn not_played(error: &Text) -> Text {
    Text::made(
        format!("could not be played: {}", error.en),
        format!("场景无法进行：{}", error.zh),
    )
}

/// The lock with which it did.
pub fn with_lock(lock: &Text, error: &Text) -> Text {
    Text::made(
        format!("with {}: {}", lock.en, error.en),
        format!("锁为“{}”：{}", lock.zh, error.zh),
    )
}

/// The scene has nowhere to put its files.
pub const NO_TEMPORARY_FOLDER: Text = Text::new("no temporary folder", "没有临时目录可用");

/// A server of the scene.
pub const NO_SERVER: Text = Text::new("a private server does not start", "无法启动私有的服务器");

/// A node that was killed.
pub const NODE_NOT_BACK: Text = Text::new("a node does not start again", "有一个节点无法重新启动");

/// Nodes that have started.
pub const NODES_TOO_YOUNG: Text = Text::new(
    "the nodes of the quorum do not grow old enough to vote",
    "多数派的节点运行得不够久，还不能投票",
);

/// Nodes that vote.
pub const NODES_UNUSABLE: Text = Text::new(
    "the nodes of the quorum cannot be used",
    "多数派的节点无法使用",
);

/// Replication does not begin.
pub const NO_MASTER: Text = Text::new("the replica does not find its master", "从节点找不到主节点");

/// An actor.
pub const NO_ACTOR: Text = Text::new("another process cannot be started", "无法再启动一个进程");

/// An actor's standard input is closed.
pub fn does_not_listen(actor: &str) -> Text {
    Text::made(
        format!("{actor} does not listen"),
        format!("{actor} 不听指令"),
    )
}

/// An actor gave up, and said why.
pub fn actor_failed(actor: &str, message: &str) -> Text {
    Text::made(
        format!("{actor} failed: {message}"),
        format!("{actor} 出错：{message}"),
    )
}

/// An actor has ended.
pub fn actor_ended(actor: &str) -> Text {
    Text::made(
        format!("the process of {actor} has ended"),
        format!("{actor} 的进程已经结束"),
    )
}

/// An actor does not come to what it should do.
pub fn takes_too_long(actor: &str, what: &Text) -> Text {
    Text::made(
        format!("{actor} takes too long {}", what.en),
        format!("{actor} {}，用时太久", what.zh),
    )
}

/// Instances of the shop wait for them.
pub const CUSTOMERS_NOT_IN: Text = Text::new("not all customers get in", "有的顾客进不了商店");

/// What is sold has no account.
pub const STOCK_WITHOUT_BOOKS: Text = Text::new("the stock has no books", "库存没有账本");

/// Nobody held, waited or sold.
pub const NOTHING_HAPPENED: Text = Text::new("nothing happened", "什么也没有发生");

/// An instance of the shop.
pub fn shop_not_started(program: &Path) -> Text {
    Text::made(
        format!("{} does not start", program.display()),
        format!("无法启动 {}", program.display()),
    )
}

/// An instance ended before it listened.
pub const SHOP_NOT_OPENED: Text = Text::new("the shop did not open", "商店没有开张");

/// An instance has ended.
pub const SHOP_IS_GONE: Text = Text::new("the shop is gone", "商店已经不在");

/// Actors are this program once more.
pub const PROGRAM_IS_GONE: Text = Text::new(
    "this program cannot be found again",
    "找不到本程序自己的文件了",
);

/// Something is not installed.
pub fn not_run(reason: &Text) -> Text {
    Text::made(
        format!("NOT RUN: {}", reason.en),
        format!("未运行：{}", reason.zh),
    )
}

/// What became of the naive lock.
pub fn naive(lock: &Text, held: bool) -> Text {
    let (en, zh) = if held {
        ("did not fail in this run", "这一次未失守")
    } else {
        ("FAILED", "失守")
    };
    Text::made(
        format!("naive: {}: {en}", lock.en),
        format!("简易锁：{}：{zh}", lock.zh),
    )
}

/// What became of ours.
pub fn ours(lock: &Text, held: bool) -> Text {
    let (en, zh) = if held {
        ("HELD", "守住")
    } else {
        ("DID NOT HOLD", "未守住")
    };
    Text::made(
        format!("ours: {}: {en}", lock.en),
        format!("我们的锁：{}：{zh}", lock.zh),
    )
}

/// How long a chapter took.
pub fn took(seconds: f64) -> Text {
    Text::made(format!("{seconds:.1} s"), format!("用时 {seconds:.1} 秒"))
}

/// A number with what it counts.
pub fn figure(figure: &Figure) -> Text {
    let (en, zh) = match figure.measure.unit {
        Unit::Count => ("", ""),
        Unit::Ms => (" ms", " 毫秒"),
    };
    let (label, value) = (&figure.measure.label, figure.value);
    Text::made(
        format!("{} {value}{en}", label.en),
        format!("{} {value}{zh}", label.zh),
    )
}

// The page and the shop open

/// The page listens.
pub fn page_is_open(url: &str) -> Text {
    Text::made(
        format!("the laboratory is open at {url} (Ctrl-C ends it)"),
        format!("实验室已打开：{url}（按 Ctrl-C 结束）"),
    )
}

/// The page is not on loopback.
pub const PAGE_FOR_OTHERS: Text = Text::new(
    "the page listens to other machines, and asks nobody who they are",
    "页面对其他机器开放，而且不问来者是谁",
);

/// `--open` found no browser.
pub fn no_browser(opener: &str, error: &impl Display, url: &str) -> Text {
    Text::made(
        format!("{opener} does not start ({error}); open {url} in a browser"),
        format!("{opener} 无法启动（{error}）；请在浏览器里打开 {url}"),
    )
}

/// An instance of the shop listens.
pub fn shop_is_open(url: &str, lock: &str, stock: &str) -> Text {
    Text::made(
        format!("the shop is open at {url} (lock: {lock}, stock: {stock})"),
        format!("商店已开张：{url}（锁：{lock}，库存：{stock}）"),
    )
}

/// An instance is not on loopback.
pub const SHOP_FOR_OTHERS: Text = Text::new(
    "the shop listens to other machines, and asks nobody who they are",
    "商店对其他机器开放，而且不问来者是谁",
);

/// The address is taken, or is of another machine.
pub fn cannot_listen(address: SocketAddr) -> Text {
    Text::made(
        format!("cannot listen on {address}"),
        format!("无法监听 {address}"),
    )
}

/// A variable to use instead of writing a lock's URL into an argument.
pub fn instead_of_lock(variable: &str) -> Text {
    Text::made(
        format!("{variable} and write --lock store"),
        format!("{variable}，并写 --lock store"),
    )
}

/// A naive lock without a server.
pub fn naive_needs_redis(name: &str) -> Text {
    Text::made(
        format!(
            "the naive lock {name:?} lives on Redis; name the server by --store redis://HOST:PORT/0"
        ),
        format!("简易锁 {name:?} 在 Redis 上；请用 --store redis://HOST:PORT/0 指明服务器"),
    )
}

/// A naive lock on a server that is not there.
pub const NAIVE_SERVER_SILENT: Text = Text::new(
    "the naive lock's Redis server does not answer",
    "简易锁的 Redis 服务器没有应答",
);

/// No kind of lock has this name; these are the naive ones.
pub fn no_lock(name: &str, naive: &str) -> Text {
    Text::made(
        format!(
            "there is no lock {name:?}; write store (that of --store), none, mutex, a store's URL such as \
             sqlite:/tmp/locks.db or redis://localhost:6379/0, or a naive lock on Redis: right, {naive}"
        ),
        format!(
            "没有 {name:?} 这种锁；可以写 store（--store 的那个存储）、none、mutex、存储的 URL（比如 sqlite:/tmp/locks.db 或 \
             redis://localhost:6379/0），或者 Redis 上的简易锁：right, {naive}"
        ),
    )
}

// The stock

/// The stock is as it was at the start.
pub fn stock_is_full(size: u32) -> Text {
    Text::made(
        format!("the stock is full: {size} in the inventory"),
        format!("库存已补满：共 {size} 件"),
    )
}

/// No kind of stock has this scheme.
pub fn no_stock(scheme: &str) -> Text {
    Text::made(
        format!(
            "there is no stock {scheme:?}; write for instance sqlite:/tmp/shop.db or redis://localhost:6379/0"
        ),
        format!("没有 {scheme:?} 这种库存；可以写 sqlite:/tmp/shop.db 或 redis://localhost:6379/0"),
    )
}

/// The URL of a stock on Redis is not one.
pub const STOCK_URL_NOT_READ: Text = Text::new(
    "the stock's URL cannot be read; write for instance redis://localhost:6379/0",
    "看不懂库存的 URL；可以写 redis://localhost:6379/0",
);

/// The variable that names the stock holds other bytes than UTF-8.
pub fn not_text(variable: &str) -> Text {
    Text::made(
        format!("{variable} is not text"),
        format!("{variable} 不是文本"),
    )
}

/// Nobody named a stock, and there is no usual place.
pub const NO_HOME_FOR_STOCK: Text = Text::new(
    "there is no home folder for the stock; name one by --stock",
    "没有主目录可以放库存；请用 --stock 指明",
);

/// The stock's file cannot be used.
pub fn stock_not_opened(path: &Path) -> Text {
    Text::made(
        format!("the stock {path:?} cannot be opened"),
        format!("无法打开库存 {path:?}"),
    )
}

/// The stock's file is of another kind.
pub const FILE_OF_OTHERS: Text = Text::new(
    "it belongs to another program; name another file",
    "这个文件属于别的程序；请换一个文件",
);

/// The stock's file would be in a folder that is not there.
pub fn no_folder(folder: &Path) -> Text {
    Text::made(
        format!("the folder {folder:?} does not exist; create it, or name another place"),
        format!("目录 {folder:?} 不存在；请先创建它，或者换个地方"),
    )
}

/// The stock's Redis server cannot be used.
pub fn stock_server_fails(server: &str, why: &Text) -> Text {
    Text::made(
        format!(
            "the stock's Redis server {server} cannot be used: {}",
            why.en
        ),
        format!("库存所在的 Redis 服务器 {server} 无法使用：{}", why.zh),
    )
}

/// It was given no password.
pub fn wants_password(variable: &str) -> Text {
    Text::made(
        format!("it wants a password; put the URL with it into {variable}"),
        format!("它需要密码；请把带密码的 URL 写进 {variable}"),
    )
}

/// It was given a wrong password.
pub fn refuses_password(variable: &str) -> Text {
    Text::made(
        format!("it refuses the user or password; check the URL in {variable}"),
        format!("用户名或密码不对；请检查 {variable} 里的 URL"),
    )
}

// Load

/// An argument that is not the URL of an instance.
pub fn no_instance(url: &str) -> Text {
    Text::made(
        format!("{url:?} is no instance; write for instance http://127.0.0.1:8080"),
        format!("{url:?} 不是实例的地址；应当写成 http://127.0.0.1:8080"),
    )
}

/// The URL of an instance with more in it than an address.
pub const INSTANCE_IS_AN_ADDRESS: Text = Text::new(
    "an instance is http://HOST:PORT, and nothing else",
    "实例的地址只能是 http://HOST:PORT",
);

/// An instance was not asked.
pub fn not_reached(error: &Text) -> Text {
    Text::made(
        format!("not reached: {}", error.en),
        format!("连不上：{}", error.zh),
    )
}

/// An instance was asked.
pub fn no_answer(error: &Text) -> Text {
    Text::made(
        format!("no answer: {}", error.en),
        format!("没有应答：{}", error.zh),
    )
}

/// An instance was given so much time.
pub fn not_within(time: Duration) -> Text {
    let seconds = time.as_secs_f64();
    Text::made(
        format!("not within {seconds} s"),
        format!("{seconds} 秒内没有答复"),
    )
}

/// Something that speaks HTTP answers in an instance's place.
pub fn status(status: impl Display) -> Text {
    Text::made(format!("status {status}"), format!("状态码 {status}"))
}

/// It answers, and has no books.
pub const NO_SHOP: Text = Text::new("it is no shop", "它不是商店");

/// A task of the load generator panicked.
pub const CUSTOMER_BROKE_OFF: Text = Text::new("a customer broke off", "有一位顾客中途中断");

/// No instance was there at the start.
pub const NO_INSTANCE_REACHED: Text = Text::new("no instance can be reached", "一个实例也连不上");

/// None was named.
pub const NAME_AN_INSTANCE: Text = Text::new("name an instance", "请写明一个实例");

/// None at a time.
pub const NOBODY_ASKS: Text = Text::new(
    "nobody would ask with a concurrency of 0",
    "并发数为 0，就没有人来买了",
);

/// More connections than files.
pub fn too_many_connections(connections: u64, files: usize) -> Text {
    Text::made(
        format!(
            "{connections} connections at once are more than the {files} files that this process may open; lower the \
             concurrency, or raise the limit (ulimit -n)"
        ),
        format!(
            "要同时打开 {connections} 个连接，而本进程最多能打开 {files} 个文件；请降低并发数，或者提高上限（ulimit -n）"
        ),
    )
}

/// The path is none.
pub const PATH_NOT_READ: Text = Text::new("the path cannot be read", "看不懂这个路径");

/// No route has this path.
pub fn sells_nothing(path: &str, routes: &str) -> Text {
    Text::made(
        format!("{path:?} sells nothing; there are {routes}"),
        format!("{path:?} 不卖任何东西；可以用的有 {routes}"),
    )
}

/// How it goes, beside the progress bar.
pub fn so_far(tally: &Tally) -> Text {
    let trouble = tally.busy + tally.fenced + tally.failed + tally.unknown;
    let (sold, refused) = (tally.sold, tally.refused);
    Text::made(
        format!("sold {sold}, refused {refused}, failed {trouble}"),
        format!("已售 {sold}，售罄 {refused}，失败 {trouble}"),
    )
}

/// How many requests there were, and how long they took.
pub fn requests(report: &Report) -> Text {
    let (requests, seconds) = (report.requests, report.seconds);
    let rate = report.requests_per_second;
    Text::made(
        format!("{requests} requests in {seconds:.1}s, {rate:.0} a second"),
        format!("{requests} 个请求，用时 {seconds:.1} 秒，每秒 {rate:.0} 个"),
    )
}

/// How long answers took.
pub fn latency(latency: &Latency) -> Text {
    let Latency { p50, p90, p99, max } = latency;
    Text::made(
        format!(
            "answered within {p50:.1}ms (half of them), {p90:.1}ms (90 %), {p99:.1}ms (99 %), {max:.1}ms (all)"
        ),
        format!(
            "应答时间：{p50:.1} 毫秒以内（一半）、{p90:.1} 毫秒（90%）、{p99:.1} 毫秒（99%）、{max:.1} 毫秒（全部）"
        ),
    )
}

/// The columns of the table of instances, after the first.
pub static COLUMNS: [Text; 6] = [
    Text::new("SOLD", "已售"),
    Text::new("REFUSED", "售罄"),
    Text::new("BUSY", "没等到锁"),
    Text::new("FENCED", "被栅栏拒绝"),
    Text::new("FAILED", "失败"),
    Text::new("UNKNOWN", "未知"),
];

/// The row of all instances.
pub const ALL: Text = Text::new("all", "合计");

/// Why an instance was given up.
pub fn gone(why: &Text) -> Text {
    Text::made(format!("gone: {}", why.en), format!("已放弃：{}", why.zh))
}

/// Why the first customer was not served.
pub fn first_trouble(why: &Text) -> Text {
    Text::made(format!("first: {}", why.en), format!("首例：{}", why.zh))
}

/// What the books say of what was bought.
pub fn account(books: &Books) -> Text {
    let account = &books.account;
    let (item, opening) = (&account.item, account.opening);
    let (sales, stock) = (account.sales, account.stock);
    Text::made(
        format!(
            "{item}: {opening} at the start, {sales} sold by the ledger, {stock} left by the count"
        ),
        format!("{item}：初始库存 {opening}，账本记录售出 {sales}，剩余库存 {stock}"),
    )
}

/// What the books say of this run.
pub fn faults(books: &Books) -> Text {
    let (oversold, lost) = (books.oversold, books.lost_updates);
    Text::made(
        format!("oversold {oversold}, lost updates {lost}"),
        format!("超卖 {oversold}，丢失的更新 {lost}"),
    )
}

/// The books are not there.
pub const NO_BOOKS: Text = Text::new(
    "no instance was left to show the books: what was oversold is not known",
    "没有实例还能出示账本：不知道超卖了多少",
);

/// More was sold than there was, or a sale is lost.
pub fn did_not_hold(books: &Books) -> Text {
    let (oversold, lost) = (books.oversold, books.lost_updates);
    Text::made(
        format!("the lock did not hold: {oversold} oversold, {lost} lost updates"),
        format!("锁没有守住：超卖 {oversold}，丢失的更新 {lost}"),
    )
}

/// Nobody got so far that the lock mattered.
pub const NOBODY_SERVED: Text = Text::new(
    "no customer was served or refused: whether the lock holds is not known",
    "没有一位顾客买到，也没有一位被告知售罄：不知道锁是否守得住",
);

#[cfg(test)]
mod tests {
    use lockkeeper_testkit::listed::unlisted;

    use super::*;
    use crate::scene::figures;
    use crate::shop::stock::Account;

    /// What stands for the words of others has none of either language.
    #[test]
    fn each_text_is_in_its_language() {
        assert_eq!(unlisted(include_str!("words.rs")), [""; 0]);
        let (x, text) = ("7", Text::from("7"));
        let address = SocketAddr::from(([127, 0, 0, 1], 7));
        let books = Books {
            account: Account::default(),
            recorded: 0,
            oversold: 1,
            lost_updates: 1,
        };
        let report = Report {
            path: String::new(),
            requests: 1,
            tally: Tally::default(),
            books: None,
            seconds: 1.0,
            requests_per_second: 1.0,
            latency_ms: Latency::default(),
            instances: Vec::new(),
        };
        let texts = [
            no_chapter(x),
            ONLY_FOR_THE_PAGE,
            INTERRUPTED,
            not_played(&text),
            with_lock(&text, &text),
            NO_TEMPORARY_FOLDER,
            NO_SERVER,
            NODE_NOT_BACK,
            NODES_TOO_YOUNG,
            NODES_UNUSABLE,
            NO_MASTER,
            NO_ACTOR,
            does_not_listen(x),
            actor_failed(x, x),
            actor_ended(x),
            takes_too_long(x, &text),
            CUSTOMERS_NOT_IN,
            STOCK_WITHOUT_BOOKS,
            NOTHING_HAPPENED,
            shop_not_started(Path::new(x)),
            SHOP_NOT_OPENED,
            SHOP_IS_GONE,
            PROGRAM_IS_GONE,
            not_run(&text),
            naive(&text, true),
            naive(&text, false),
            ours(&text, true),
            ours(&text, false),
            took(1.0),
            figure(&figures::OVERLAP.figure(7)),
            page_is_open(x),
            PAGE_FOR_OTHERS,
            no_browser(x, &x, x),
            shop_is_open(x, x, x),
            SHOP_FOR_OTHERS,
            cannot_listen(address),
            instead_of_lock(x),
            naive_needs_redis(x),
            NAIVE_SERVER_SILENT,
            no_lock(x, x),
            stock_is_full(7),
            no_stock(x),
            STOCK_URL_NOT_READ,
            not_text(x),
            NO_HOME_FOR_STOCK,
            stock_not_opened(Path::new(x)),
            FILE_OF_OTHERS,
            no_folder(Path::new(x)),
            stock_server_fails(x, &text),
            wants_password(x),
            refuses_password(x),
            no_instance(x),
            INSTANCE_IS_AN_ADDRESS,
            not_reached(&text),
            no_answer(&text),
            not_within(Duration::from_secs(7)),
            status(x),
            NO_SHOP,
            CUSTOMER_BROKE_OFF,
            NO_INSTANCE_REACHED,
            NAME_AN_INSTANCE,
            NOBODY_ASKS,
            too_many_connections(7, 7),
            PATH_NOT_READ,
            sells_nothing(x, x),
            so_far(&Tally::default()),
            requests(&report),
            latency(&Latency::default()),
            ALL,
            gone(&text),
            first_trouble(&text),
            account(&books),
            faults(&books),
            NO_BOOKS,
            did_not_hold(&books),
            NOBODY_SERVED,
        ];
        for text in texts.iter().chain(&COLUMNS) {
            assert!(text.en.is_ascii(), "{text:?}");
            let chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
            assert!(text.zh.contains(chinese), "{text:?}");
        }
    }
}
