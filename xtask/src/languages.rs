//! Whether the documents in English and in Chinese are in step: headings, code, tables and links.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::path::Path;

/// The Chinese documents that have to be there.
const PAGES: &[&str] = &[
    "README.zh-CN.md",
    "docs/zh/choosing-a-store.md",
    "docs/zh/guarantees.md",
    "docs/zh/map.md",
    "docs/zh/quorum.md",
    "docs/zh/redis.md",
    "docs/zh/run.md",
    "docs/zh/sql.md",
    "docs/zh/tutorial.md",
    "docs/zh/zookeeper.md",
];

/// The Chinese documents without an English original.
const ALONE: &[&str] = &["docs/zh/map.md"];

/// Fails with all that is not in step.
pub fn check(root: &Path) -> Result<(), String> {
    let faults = faults(root, PAGES)?;
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

fn faults(root: &Path, required: &[&str]) -> Result<Vec<String>, String> {
    let mut pages: BTreeSet<String> = required.iter().map(|page| (*page).to_owned()).collect();
    pages.extend(chinese_pages(root)?);
    let mut faults = Vec::new();
    for page in pages {
        let Some(chinese) = Document::read(root, &page) else {
            faults.push(format!("{page} is missing"));
            continue;
        };
        if !ALONE.contains(&page.as_str()) {
            let original = original(&page);
            match Document::read(root, &original) {
                Some(english) => {
                    faults.extend(difference(&english, &chinese));
                    faults.extend(english.broken_links(root));
                }
                None => faults.push(format!("{page}: its original {original} is missing")),
            }
        }
        faults.extend(chinese.broken_links(root));
        faults.extend(chinese.foreign_links(root));
    }
    Ok(faults)
}

/// The documents in `docs/zh`.
fn chinese_pages(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("docs/zh");
    let failed = |e| format!("{}: {e}", folder.display());
    let mut pages = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".md") {
            pages.push(format!("docs/zh/{name}"));
        }
    }
    Ok(pages)
}

/// The English document of a Chinese one.
fn original(page: &str) -> String {
    match page.strip_suffix(".zh-CN.md") {
        Some(name) => format!("{name}.md"),
        None => page.replacen("docs/zh/", "docs/", 1),
    }
}

/// The first block that differs. Later ones may differ only because they moved.
fn difference(english: &Document, chinese: &Document) -> Option<String> {
    let (ours, theirs) = (&chinese.blocks, &english.blocks);
    let at = (0..ours.len().max(theirs.len()))
        .find(|&at| ours.get(at).map(|b| &b.kind) != theirs.get(at).map(|b| &b.kind))?;
    Some(format!(
        "{} where {}",
        chinese.says(at),
        english.says(at).replacen(": ", " has ", 1)
    ))
}

/// What the check sees of a document.
struct Document {
    /// From the root of the project.
    path: String,
    blocks: Vec<Block>,
    /// The line and the target of each link.
    links: Vec<(usize, String)>,
    /// What links can name behind a `#`.
    anchors: Vec<String>,
}

struct Block {
    line: usize,
    kind: Kind,
}

/// A part of a document that is the same in each language.
#[derive(PartialEq, Eq)]
enum Kind {
    /// A heading of this level.
    Heading(usize),
    /// Code, with its fences.
    Code(String),
    /// How many cells each row of a table has.
    Table(Vec<usize>),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Heading(level) => write!(f, "a heading of level {level}"),
            Kind::Code(text) => write!(f, "the code {text:?}"),
            Kind::Table(rows) => write!(f, "a table with rows of {rows:?} cells"),
        }
    }
}

impl Document {
    fn read(root: &Path, path: &str) -> Option<Document> {
        let text = fs::read_to_string(root.join(path)).ok()?;
        Some(Document::parse(path, &text))
    }

    fn parse(path: &str, text: &str) -> Document {
        let mut document = Document {
            path: path.to_owned(),
            blocks: Vec::new(),
            links: Vec::new(),
            anchors: Vec::new(),
        };
        let mut fence = None;
        let mut seen = HashMap::<String, usize>::new();
        for (line, text) in (1..).zip(text.lines()) {
            let trimmed = text.trim();
            let ticks = trimmed.chars().take_while(|c| *c == '`').count();
            match (fence, document.blocks.last_mut()) {
                (
                    Some(opening),
                    Some(Block {
                        kind: Kind::Code(code),
                        ..
                    }),
                ) => {
                    code.push('\n');
                    code.push_str(text);
                    if ticks >= opening && ticks == trimmed.len() {
                        fence = None;
                    }
                    continue;
                }
                (
                    None,
                    Some(Block {
                        line: first,
                        kind: Kind::Table(rows),
                    }),
                ) if trimmed.starts_with('|') && *first + rows.len() == line => {
                    rows.push(cells(trimmed));
                }
                _ if ticks >= 3 => {
                    fence = Some(ticks);
                    document.push(line, Kind::Code(text.to_owned()));
                    continue;
                }
                _ if trimmed.starts_with('|') => {
                    document.push(line, Kind::Table(vec![cells(trimmed)]));
                }
                _ => {}
            }
            if let Some((level, title)) = heading(text) {
                document.push(line, Kind::Heading(level));
                let mut anchor = anchor(title);
                let times = seen.entry(anchor.clone()).or_default();
                *times += 1;
                if *times > 1 {
                    anchor = format!("{anchor}-{}", *times - 1);
                }
                document.anchors.push(anchor);
            }
            let links = links(text).into_iter().map(|link| (line, link));
            document.links.extend(links);
        }
        document
    }

    fn push(&mut self, line: usize, kind: Kind) {
        self.blocks.push(Block { line, kind });
    }

    /// Describes a block, or that the document ends before it.
    fn says(&self, at: usize) -> String {
        match self.blocks.get(at) {
            Some(Block { line, kind }) => format!("{}:{line}: {kind}", self.path),
            None => format!("{}: its end", self.path),
        }
    }

    /// The links that lead to no file or to no heading.
    fn broken_links(&self, root: &Path) -> Vec<String> {
        let leads = |file: &str, anchor: &str| {
            let Some(target) = resolve(&self.path, file) else {
                return false;
            };
            if !root.join(&target).exists() {
                return false;
            }
            if anchor.is_empty() || !target.ends_with(".md") {
                return true;
            }
            let document = Document::read(root, &target);
            document.is_some_and(|document| document.anchors.iter().any(|a| a == anchor))
        };
        self.local_links()
            .filter(|(_, file, anchor)| !leads(file, anchor))
            .map(|(line, file, anchor)| {
                let hash = if anchor.is_empty() { "" } else { "#" };
                format!("{}:{line}: {file}{hash}{anchor} leads nowhere", self.path)
            })
            .collect()
    }

    /// The links of a Chinese document to English ones that are there in Chinese, but for its own original.
    fn foreign_links(&self, root: &Path) -> Vec<String> {
        let own = original(&self.path);
        self.local_links()
            .filter_map(|(line, file, _)| {
                let target = resolve(&self.path, file).filter(|target| *target != own)?;
                let chinese = format!("docs/zh/{}", target.strip_prefix("docs/")?);
                let there = target.ends_with(".md") && root.join(&chinese).exists();
                there.then(|| format!("{}:{line}: {file} is there as {chinese}", self.path))
            })
            .collect()
    }

    /// The line, file and anchor of each link that stays in the project.
    fn local_links(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        let local =
            |link: &&(usize, String)| !link.1.contains("://") && !link.1.starts_with("mailto:");
        self.links.iter().filter(local).map(|(line, link)| {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            (*line, file, anchor)
        })
    }
}

/// The level and the title of a heading.
fn heading(line: &str) -> Option<(usize, &str)> {
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    let title = title.strip_prefix(' ')?;
    (1..=6).contains(&level).then_some((level, title.trim()))
}

/// What GitHub makes of a title.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then_some(c),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// How many cells a row of a table has. A `\|` is text.
fn cells(row: &str) -> usize {
    let row = row.replace("\\|", "");
    let row = row.strip_prefix('|').unwrap_or(&row);
    let row = row.strip_suffix('|').unwrap_or(row);
    row.split('|').count()
}

/// The targets of the links in a line, and that of a definition `[label]: target`.
fn links(line: &str) -> Vec<String> {
    // Every other part stands in backticks.
    let text: String = line.split('`').step_by(2).collect();
    let mut links: Vec<String> = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect();
    if let Some((_, target)) = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
    {
        links.push(target.trim().to_owned());
    }
    links
}

/// The path from the root of what a link in a document names, unless it is outside.
fn resolve(document: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(document.to_owned());
    }
    let mut folders: Vec<&str> = document.split('/').collect();
    folders.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(folders.pop()?),
            _ => folders.push(part),
        }
    }
    Some(folders.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH: &str = "# Title\n\n[run](run.md#a-b)\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n## Code\n\n```sh\n# x\ntrue\n```\n";
    const CHINESE: &str = "# 标题\n\n[运行](run.md#甲-乙)\n\n| 甲 | 乙 |\n| --- | --- |\n| 一 | 二 |\n\n## 代码\n\n```sh\n# x\ntrue\n```\n";

    /// The faults of a project of two pairs in step, after some files of it were written anew or (`None`) deleted.
    fn told(changes: &[(&str, Option<&str>)]) -> Vec<String> {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        fs::create_dir_all(root.join("docs/zh")).expect("the folders");
        let files = [
            ("docs/page.md", Some(ENGLISH)),
            ("docs/zh/page.md", Some(CHINESE)),
            ("docs/run.md", Some("# `A`, b!\n")),
            ("docs/zh/run.md", Some("# 甲, 乙。\n")),
            ("docs/zh/map.md", Some("# 对照表\n")),
        ];
        for (path, text) in files.iter().chain(changes) {
            let path = root.join(path);
            match text {
                Some(text) => fs::write(path, text).expect("written"),
                None => fs::remove_file(path).expect("deleted"),
            }
        }
        faults(root, &["docs/zh/page.md", "docs/zh/run.md"]).expect("readable")
    }

    /// The faults after something in the Chinese page was written in another way.
    fn with(from: &str, to: &str) -> Vec<String> {
        assert!(CHINESE.contains(from), "{from}");
        told(&[("docs/zh/page.md", Some(&CHINESE.replacen(from, to, 1)))])
    }

    #[test]
    fn documents_in_step_have_no_faults() {
        assert_eq!(told(&[]), [""; 0]);
    }

    #[test]
    fn a_missing_document_is_told() {
        let faults = told(&[("docs/zh/page.md", None)]);
        assert_eq!(faults, ["docs/zh/page.md is missing"]);
        let faults = told(&[("docs/zh/more.md", Some("# 更多\n"))]);
        let expected = ["docs/zh/more.md: its original docs/more.md is missing"];
        assert_eq!(faults, expected);
    }

    #[test]
    fn the_readme_has_its_original_beside() {
        assert_eq!(original("README.zh-CN.md"), "README.md");
        assert_eq!(original("docs/zh/run.md"), "docs/run.md");
    }

    #[test]
    fn headings_have_the_same_levels_and_number() {
        let expected =
            "docs/zh/page.md:9: a heading of level 3 where docs/page.md:9 has a heading of level 2";
        assert_eq!(with("## 代码", "### 代码"), [expected]);
        let expected = "docs/zh/page.md: its end where docs/page.md:15 has a heading of level 2";
        let more = format!("{ENGLISH}## More\n");
        assert_eq!(told(&[("docs/page.md", Some(&more))]), [expected]);
        let expected = "docs/zh/page.md:15: a heading of level 2 where docs/page.md has its end";
        assert_eq!(with("true\n```\n", "true\n```\n## 更多\n"), [expected]);
    }

    #[test]
    fn code_is_identical() {
        for (from, to) in [
            ("true", "false"),
            ("# x", "# 甲"),
            ("```sh", "```"),
            ("\ntrue", ""),
        ] {
            let faults = with(from, to);
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(
                faults[0].starts_with("docs/zh/page.md:11: the code "),
                "{faults:?}"
            );
            let english = "where docs/page.md:11 has the code \"```sh\\n# x\\ntrue\\n```\"";
            assert!(faults[0].ends_with(english), "{faults:?}");
        }
    }

    #[test]
    fn tables_have_the_same_rows_and_columns() {
        let english = "where docs/page.md:5 has a table with rows of [2, 2, 2] cells";
        for (from, to, cells) in [
            ("| 一 | 二 |\n", "", "[2, 2]"),
            ("| 一 | 二 |", "| 一 | 二 |\n| 三 | 四 |", "[2, 2, 2, 2]"),
            ("| 一 | 二 |", "| 一 二 |", "[2, 2, 1]"),
            ("| 一 | 二 |", "| 一 | 二 | 三 |", "[2, 2, 3]"),
        ] {
            let chinese = format!("docs/zh/page.md:5: a table with rows of {cells} cells");
            assert_eq!(with(from, to), [format!("{chinese} {english}")]);
        }
        assert_eq!(with("| 一 | 二 |", r"| 一 \| 三 | 二 |"), [""; 0]);
    }

    #[test]
    fn a_block_stays_in_its_section() {
        let table = "| 甲 | 乙 |\n| --- | --- |\n| 一 | 二 |\n";
        let moved = CHINESE.replacen(table, "", 1) + "\n" + table;
        let faults = told(&[("docs/zh/page.md", Some(&moved))]);
        let expected = "docs/zh/page.md:6: a heading of level 2 where docs/page.md:5 has a table with rows of [2, 2, 2] cells";
        assert_eq!(faults, [expected]);
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        for broken in ["no.md", "run.md#丙", "#丙", "../../../run.md"] {
            let expected = format!("docs/zh/page.md:3: {broken} leads nowhere");
            assert_eq!(with("run.md#甲-乙", broken), [expected]);
        }
        for good in [
            "#标题",
            "https://example.org/no.md",
            "../page.md",
            "../zh",
            "map.md",
        ] {
            assert_eq!(with("run.md#甲-乙", good), [""; 0]);
        }
        let defined = with("[运行](run.md#甲-乙)", "[运行][1]\n[1]: no.md");
        assert!(defined.contains(&"docs/zh/page.md:4: no.md leads nowhere".to_owned()));
        let code = with("[运行](run.md#甲-乙)", "`[运行](no.md)`");
        assert_eq!(code, [""; 0]);
    }

    #[test]
    fn links_are_checked_in_english_and_where_there_is_no_original() {
        let english = ENGLISH.replacen("run.md#a-b", "no.md", 1);
        let faults = told(&[("docs/page.md", Some(&english))]);
        assert_eq!(faults, ["docs/page.md:3: no.md leads nowhere"]);
        let faults = told(&[("docs/zh/map.md", Some("# 表\n[一](no.md)\n"))]);
        assert_eq!(faults, ["docs/zh/map.md:2: no.md leads nowhere"]);
    }

    #[test]
    fn chinese_documents_lead_to_chinese_ones() {
        let expected = "docs/zh/page.md:3: ../run.md is there as docs/zh/run.md";
        assert_eq!(with("run.md#甲-乙", "../run.md"), [expected]);
    }

    #[test]
    fn titles_become_anchors_as_on_github() {
        assert_eq!(anchor("15 · The holder, `paused`"), "15--the-holder-paused");
        assert_eq!(anchor("1 · 没有锁，两个实例"), "1--没有锁两个实例");
        let twice = Document::parse("a.md", "# A\n## A\n");
        assert_eq!(twice.anchors, ["a", "a-1"]);
    }

    #[test]
    fn the_projects_documents_are_in_step() {
        assert_eq!(check(&crate::tools::root()), Ok(()));
    }
}
