//! Lists in a test that have to have everything which its file makes.

use std::collections::HashSet;

/// The public functions and constants of a source file that its own tests do not name.
pub fn unlisted(source: &str) -> Vec<&str> {
    let (made, tests) = source.split_once("#[cfg(test)]").expect("it has tests");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let listed: HashSet<&str> = tests.split(|c| !is_name(c)).collect();
    let items = made.lines().filter_map(|line| {
        let item = ["pub fn ", "pub const ", "pub static "];
        item.iter().find_map(|item| line.strip_prefix(item))
    });
    let names = items.filter_map(|item| item.split(|c| !is_name(c)).next());
    names.filter(|name| !listed.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_test_names_is_unlisted() {
        let source = "\
pub fn named() {}
pub fn named_too() {}
pub const FORGOTTEN: u8 = 1;
fn private() {}
#[cfg(test)]
[named(), named_too()]";
        assert_eq!(unlisted(source), ["FORGOTTEN"]);
    }
}
