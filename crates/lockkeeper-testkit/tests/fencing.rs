//! The recipes of docs/fencing.md, taken out of the page and run: a holder that was stopped past its lease is refused.

#[path = "support/place.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod place;

use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::redis::RedisServer;
use place::Place;
use redis::{Script, ScriptInvocation};
use rusqlite::{Connection, OptionalExtension, named_params};

/// The resource with a count, as a recipe guards it.
trait Recipe {
    /// `None`: a higher token was shown before.
    fn read(&mut self, token: u64) -> Option<i64>;
    /// Whether it was written.
    fn write(&mut self, token: u64, count: i64) -> bool;
}

fn page() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fencing.md");
    std::fs::read_to_string(page).expect("the page is there")
}

/// The blocks of the page that have this language.
fn blocks(language: &str) -> Vec<String> {
    let page = page();
    let fence = format!("\n```{language}\n");
    let blocks = page.split(&fence).skip(1);
    let text = blocks.map(|block| block.split("```").next().expect("a block").to_owned());
    text.collect()
}

/// The text of a constant in the page's Rust.
fn constant(name: &str) -> String {
    let page = page();
    let begin = format!("const {name}: &str = \"");
    let (_, rest) = page.split_once(&begin).expect(name);
    rest.split('"').next().expect("its end").to_owned()
}

fn token(held: &str) -> u64 {
    let token = held.split_whitespace().next();
    token.and_then(|token| token.parse().ok()).expect("a token")
}

/// A holder reads and is stopped; the next one reads; the first wakes up and writes what it had in mind.
fn refuses_a_stopped_holder(place: &Place, recipe: &mut impl Recipe) {
    let first = place.holder("1s");
    let early = token(&first.expect("held"));
    assert_eq!(recipe.read(early), Some(8));
    first.stop().expect("is stopped");

    let second: Taker = place.holder("1s");
    let late = token(&second.expect("held"));
    assert!(late > early);
    assert_eq!(recipe.read(late), Some(8));

    first.go_on().expect("goes on");
    first.expect("lost");
    // Before the second holder has written anything: only its read has shown the token.
    assert!(!recipe.write(early, 7), "the late write is refused");
    assert_eq!(recipe.read(early), None);
    assert!(recipe.write(late, 6) && recipe.write(late, 5));
    assert!(!recipe.write(early, 7), "the late write is refused again");
    assert_eq!(recipe.read(late), Some(5));
}

struct OnRedis {
    connection: redis::Connection,
    fenced: Script,
}

impl OnRedis {
    fn call(&mut self, token: u64, value: Option<i64>) -> Option<i64> {
        let mut call: ScriptInvocation<'_> = self.fenced.key("{stock:42}:count");
        call.key("{stock:42}:fence").arg(token);
        if let Some(value) = value {
            call.arg(value);
        }
        match call.invoke(&mut self.connection) {
            Ok(count) => Some(count),
            Err(error) => {
                assert_eq!(error.code(), Some("FENCED"), "{error}");
                None
            }
        }
    }
}

impl Recipe for OnRedis {
    fn read(&mut self, token: u64) -> Option<i64> {
        self.call(token, None)
    }
    fn write(&mut self, token: u64, count: i64) -> bool {
        self.call(token, Some(count)).is_some()
    }
}

#[test]
fn the_recipe_for_redis_refuses_a_stopped_holder() {
    let server = RedisServer::start();
    assert_eq!(server.command(&["SET", "{stock:42}:count", "8"]), "+OK\r\n");
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut recipe = OnRedis {
        connection: client.get_connection().expect("connects"),
        fenced: Script::new(&blocks("lua")[0]),
    };
    refuses_a_stopped_holder(&Place::at(&server.url()), &mut recipe);
}

struct OnOneColumn(Connection);

impl Recipe for OnOneColumn {
    fn read(&mut self, token: u64) -> Option<i64> {
        let values = named_params! {":item": "stock:42", ":token": token.cast_signed()};
        let count = self
            .0
            .query_row(&constant("READ"), values, |row| row.get(0));
        count.optional().expect("reads")
    }
    fn write(&mut self, token: u64, count: i64) -> bool {
        let token = token.cast_signed();
        let values = named_params! {":item": "stock:42", ":token": token, ":count": count};
        self.0
            .execute(&constant("WRITE"), values)
            .expect("is executed")
            == 1
    }
}

#[test]
fn the_recipe_for_one_column_of_sqlite_refuses_a_stopped_holder() {
    let place = Place::new();
    let db = Connection::open(place.file("shop.db")).expect("opens");
    db.execute(&constant("TABLE"), ()).expect("a table");
    let fill = "INSERT INTO stock (item, count) VALUES ('stock:42', 8)";
    db.execute(fill, ()).expect("a row");
    refuses_a_stopped_holder(&place, &mut OnOneColumn(db));
}

/// Two tables that one lock covers.
struct OnATable {
    db: Connection,
    admit: String,
}

impl OnATable {
    /// Does something in a transaction whose first statement admits the token.
    fn admitted<T>(&mut self, token: u64, then: impl FnOnce(&Connection) -> T) -> Option<T> {
        let transaction = self.db.transaction().expect("begins");
        let values = named_params! {":name": "stock:42", ":token": token.cast_signed()};
        let changed = transaction.execute(&self.admit, values).expect("executes");
        if changed == 0 {
            return None;
        }
        let done = then(&transaction);
        transaction.commit().expect("commits");
        Some(done)
    }
}

impl Recipe for OnATable {
    fn read(&mut self, token: u64) -> Option<i64> {
        self.admitted(token, |db| {
            db.query_row("SELECT count FROM stock", (), |row| row.get(0))
                .expect("a count")
        })
    }
    fn write(&mut self, token: u64, count: i64) -> bool {
        let written = self.admitted(token, |db| {
            db.execute("UPDATE stock SET count = ?", [count])
                .expect("writes");
            db.execute("INSERT INTO sale (count) VALUES (?)", [count])
                .expect("writes");
        });
        written.is_some()
    }
}

#[test]
fn the_recipe_for_several_tables_of_sqlite_refuses_a_stopped_holder() {
    let place = Place::new();
    let db = Connection::open(place.file("shop.db")).expect("opens");
    let [table, admit] = blocks("sql").try_into().expect("two statements");
    db.execute_batch(&table).expect("a table");
    let tables = "CREATE TABLE stock (count INTEGER); CREATE TABLE sale (count INTEGER); INSERT INTO stock VALUES (8)";
    db.execute_batch(tables).expect("tables");
    let mut recipe = OnATable { db, admit };
    refuses_a_stopped_holder(&place, &mut recipe);
    let sales = "SELECT count(*) FROM sale";
    let sales: i64 = recipe
        .db
        .query_row(sales, (), |row| row.get(0))
        .expect("a count");
    assert_eq!(sales, 2);
}
