//! `lockkeeper stores`: which stores there are and what each can do.

use lockkeeper::store::{
    Capabilities, Fencing, LeaseEnd, Reach, Scheme, TimeAuthority, Wakeups, schemes,
};
use lockkeeper::url::StoreUrl;
use serde::Serialize;

use crate::view::{FileView, NodeView};
use lockkeeper_cli::exit::Failure;
use lockkeeper_cli::output::{print, print_json, table, table_text};
use lockkeeper_cli::store::{self, StoreArgs};

/// Lists the kinds of stores and what each can do
///
/// If the store in use is a quorum, it is asked how its nodes are; if it is a SQLite file, how large its log is and
/// which processes keep others from writing or the log from starting over.
#[derive(Debug, clap::Args)]
pub struct Args {}

#[derive(Serialize)]
struct StoreView {
    scheme: &'static str,
    dialect: Option<&'static str>,
    example: &'static str,
    feature: Option<&'static str>,
    /// Whether this build has it; what follows is known only then.
    built_in: bool,
    #[serde(flatten)]
    can: Option<CapabilitiesView>,
    /// How long the token key of a name stays after its last use, unless the URL says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_retention: Option<&'static str>,
    /// How the nodes of the store in use are, if it is a quorum of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeView>>,
    /// Why its nodes could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes_error: Option<String>,
    /// How the store in use is, if it is a SQLite file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<FileView>,
}

#[derive(Serialize)]
struct CapabilitiesView {
    reach: &'static str,
    fair: bool,
    read_write: bool,
    permits: bool,
    latches: bool,
    queue: bool,
    fencing: &'static str,
    wakeups: &'static str,
    survives_restart: bool,
    frees_dead_at_once: bool,
    time: &'static str,
    lease_end: &'static str,
    /// Unless the URL says otherwise.
    longest_lease_ms: u64,
}

impl CapabilitiesView {
    fn new(can: Capabilities) -> CapabilitiesView {
        CapabilitiesView {
            reach: match can.reach {
                Reach::Process => "process",
                Reach::Machine => "machine",
                Reach::Network => "network",
                _ => "other",
            },
            fair: can.fair,
            read_write: can.read_write,
            permits: can.permits,
            latches: can.latches,
            queue: can.queue,
            fencing: match can.fencing {
                Fencing::DataOrClock => "data or clock",
                Fencing::Native => "native",
                _ => "other",
            },
            wakeups: match can.wakeups {
                Wakeups::Direct => "direct",
                Wakeups::Broadcast => "broadcast",
                Wakeups::Polling => "polling",
                _ => "other",
            },
            survives_restart: can.survives_restart,
            frees_dead_at_once: can.frees_dead_at_once,
            time: match can.time {
                TimeAuthority::Boot => "boot clock",
                TimeAuthority::ServerWall => "server clock",
                TimeAuthority::LeaderMonotonic => "leader's monotonic clock",
                _ => "other",
            },
            lease_end: match can.lease_end {
                LeaseEnd::ByItself => "by itself",
                LeaseEnd::WithSession => "with its session",
                _ => "other",
            },
            longest_lease_ms: can.longest_lease.as_millis() as u64,
        }
    }
}

impl StoreView {
    /// What the table calls it.
    fn title(&self) -> &'static str {
        match (self.scheme, self.dialect) {
            ("redlock", Some("plain")) => "redlock, plain",
            ("redlock", _) => "redlock",
            (_, Some("plain")) => "redis, plain",
            (_, Some(_)) => "redis",
            ("zk" | "zks", _) => "zookeeper",
            ("etcd" | "etcds", _) => "etcd",
            (_, None) => self.scheme,
        }
    }
}

fn view(scheme: &Scheme) -> StoreView {
    StoreView {
        scheme: scheme.scheme,
        dialect: scheme.dialect,
        example: scheme.example,
        feature: scheme.feature,
        built_in: scheme.capabilities.is_some(),
        can: scheme.capabilities.map(CapabilitiesView::new),
        token_retention: scheme.dialect.map(|dialect| match dialect {
            "plain" => "30d",
            _ => "forever",
        }),
        nodes: None,
        nodes_error: None,
        file: None,
    }
}

/// Looks at the store in use, if there is something to tell of it.
async fn look(views: &mut [StoreView], args: &StoreArgs) -> Result<(), Failure> {
    let url = match &args.store {
        Some(url) => StoreUrl::parse(url),
        None => StoreUrl::from_environment(),
    };
    // A list of stores needs no store: whatever is wrong with a URL is not its matter.
    let Ok(url) = url else { return Ok(()) };
    if url.scheme() == "sqlite" {
        let file = url.path().ok().and_then(|path| FileView::of(&path));
        let view = views.iter_mut().find(|view| view.scheme == "sqlite");
        if let (Some(view), Some(file)) = (view, file) {
            view.file = Some(file);
        }
        return Ok(());
    }
    let plain = url.rest().contains("dialect=plain");
    let used = |view: &&mut StoreView| {
        url.scheme() == view.scheme && (view.dialect == Some("plain")) == plain
    };
    let Some(view) = views
        .iter_mut()
        .filter(|v| v.scheme == "redlock")
        .find(used)
    else {
        return Ok(());
    };
    match store::open(args).await {
        Ok(keeper) => view.nodes = Some(keeper.nodes().iter().map(NodeView::new).collect()),
        Err(error) => view.nodes_error = error.message.map(|text| text.en.into_owned()),
    }
    Ok(())
}

pub async fn run(args: &StoreArgs) -> Result<(), Failure> {
    let mut views: Vec<_> = schemes().iter().map(view).collect();
    look(&mut views, args).await?;
    if args.json {
        return Ok(print_json(&views)?);
    }
    // Stores are few and their abilities many: one column a store stays readable. Where several ways lead to one
    // kind of store, they share it.
    let columns: Vec<_> = views.chunk_by(|a, b| a.title() == b.title()).collect();
    let header = std::iter::once("").chain(columns.iter().map(|column| column[0].title()));
    let mut table = table(&header.collect::<Vec<_>>());
    for (title, cell) in ROWS {
        let cells = columns.iter().map(|column| match &column[0].can {
            Some(can) => cell(can).to_owned(),
            None => "-".to_owned(),
        });
        table.add_row(std::iter::once((*title).to_owned()).chain(cells));
    }
    print(&table_text(&table))?;
    for column in columns {
        let title = column[0].title();
        match column[0].feature {
            Some(feature) if !column[0].built_in => print(&format!(
                "{title}: not in this build; enable the cargo feature `{feature}`"
            ))?,
            _ => {
                if let Some(retention) = column[0].token_retention {
                    print(&format!("{title}: token_retention={retention} by default"))?;
                }
                for view in column {
                    print(&format!("{title}: for instance {}", view.example))?;
                    for node in view.nodes.iter().flatten() {
                        print(&format!("{title}: node {} {}", node.node, node.text))?;
                    }
                    for line in view.file.iter().flat_map(FileView::lines) {
                        print(&format!("{title}: {line}"))?;
                    }
                    if let Some(error) = &view.nodes_error {
                        print(&format!("{title}: {error}"))?;
                    }
                }
            }
        }
    }
    Ok(())
}

type Cell = fn(&CapabilitiesView) -> &'static str;

const ROWS: &[(&str, Cell)] = &[
    ("excludes within one", |can| can.reach),
    ("fair locks", |can| yes(can.fair)),
    ("read and write locks", |can| yes(can.read_write)),
    ("semaphores", |can| yes(can.permits)),
    ("latches", |can| yes(can.latches)),
    ("queue", |can| yes(can.queue)),
    ("fencing tokens by", |can| can.fencing),
    ("wake-ups", |can| can.wakeups),
    ("holds survive a server's restart", survival),
    ("a dead holder frees at once", |can| {
        yes(can.frees_dead_at_once)
    }),
    ("leases end by", |can| can.time),
    ("a dead holder's lease ends", |can| can.lease_end),
];

/// On which condition.
fn survival(can: &CapabilitiesView) -> &'static str {
    match (can.survives_restart, can.reach) {
        (false, _) => "no",
        // It has no server, and nobody who held a lock is left after a reboot.
        (true, "machine") => "no server; not a reboot",
        (true, _) => "with data on disk",
    }
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
