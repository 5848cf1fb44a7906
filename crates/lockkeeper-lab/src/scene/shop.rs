//! Instances of the shop in a scene, each a process, and their customers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use super::Scene;
use super::actor::SOON;
use super::folder::Folder;
use super::timeline::{Doing, MarkKind};
use crate::shop::load::{self, LoadOptions, Report, Tally};
use crate::shop::lock::LockKind;
use crate::shop::{Instance, ServeOptions};
use crate::text::{Text, grouped};
use crate::words;

/// How often to look whether all customers are in.
const POLL: Duration = Duration::from_millis(20);

/// Some instances on one stock. Dropping it kills them.
#[derive(Debug)]
pub struct Shop {
    instances: Vec<Instance>,
    /// Goes after them, also if the scene is gone while they start: one that finds no folder would make it anew.
    _folder: Arc<Folder>,
}

impl Scene {
    /// Opens so many instances with this scene's lock, which decide at once, or when all customers are in.
    pub async fn shop(&self, instances: usize, size: u32, held_back: bool) -> Result<Shop> {
        let lock = match self.lock.kind {
            "ours" => LockKind::Ours(self.url.clone()),
            kind => LockKind::parse(kind, Some(&self.url))?,
        };
        let options = ServeOptions {
            size,
            held_back,
            lease: self.lock.lease,
            wait: Duration::from_secs(60),
            ..ServeOptions::new(lock, self.new_stock())
        };
        let program = self.program.clone();
        let mut shop = Shop {
            instances: Vec::new(),
            _folder: self.folder.clone(),
        };
        let open = move || {
            for _ in 0..instances {
                shop.instances.push(Instance::start(&program, &options)?);
            }
            Ok(shop)
        };
        tokio::task::spawn_blocking(open).await?
    }

    /// Customers who come at the same moment, each for one piece, and each to the next instance in turn. Nothing is
    /// decided before every one of them has seen the stock, or waits for the lock.
    pub async fn customers(&self, shop: &mut Shop, count: usize, path: &str) -> Result<()> {
        let mut asking = JoinSet::new();
        for number in 0..count {
            let instance = &shop.instances[number % shop.instances.len()];
            let port = instance.opened().port;
            let lane = self
                .board
                .lane(&format!("{} at :{port}", number + 1), false);
            let mut options = shop.load(path, 1);
            options.instances = vec![instance.url().to_owned()];
            let board = self.board.clone();
            asking.spawn(async move {
                board.begin(lane, Doing::Waits);
                let told = load::customer(&options).await;
                board.end(lane, Doing::Waits);
                board.mark(lane, answered(&told?));
                anyhow::Ok(())
            });
        }
        let urls = shop.load(path, 0).instances;
        let end = Instant::now() + SOON;
        while load::inside(&urls).await? < count as u64 {
            ensure!(Instant::now() < end, words::CUSTOMERS_NOT_IN);
            tokio::time::sleep(POLL).await;
        }
        for instance in &mut shop.instances {
            instance.go_on()?;
        }
        while let Some(asked) = asking.join_next().await {
            asked??;
        }
        Ok(())
    }

    /// Very many customers, 64 at a time. `watch` sees how they fare.
    pub async fn crowd(
        &self,
        shop: &Shop,
        requests: u64,
        path: &str,
        watch: impl FnMut(&Tally),
    ) -> Result<Report> {
        let lanes: Vec<usize> = shop
            .instances
            .iter()
            .map(|instance| {
                self.board
                    .lane(&format!(":{}", instance.opened().port), false)
            })
            .collect();
        lanes
            .iter()
            .for_each(|lane| self.board.begin(*lane, Doing::Serves));
        let report = load::run(&shop.load(path, requests), watch).await;
        lanes
            .iter()
            .for_each(|lane| self.board.end(*lane, Doing::Serves));
        report
    }

    /// Takes the books of the shop, which are to show as many sales as there were pieces.
    pub async fn take_books(&mut self, shop: &Shop, path: &str) -> Result<()> {
        let report = load::run(&shop.load(path, 0), |_| {}).await?;
        let books = report.books.context(words::NO_BOOKS)?;
        let (opening, sales) = (books.account.opening, books.account.sales);
        if sales < opening {
            let [sales, opening] = [sales, opening].map(grouped);
            self.faults.push(Text::made(
                format!("Only {sales} of {opening} were sold, and there were customers enough."),
                format!("顾客足够，{opening} 件却只卖出 {sales} 件。"),
            ));
        }
        self.books = Some(books.account);
        Ok(())
    }
}

impl Shop {
    fn load(&self, path: &str, requests: u64) -> LoadOptions {
        let urls = self.instances.iter().map(|one| one.url().to_owned());
        LoadOptions {
            path: path.to_owned(),
            ..LoadOptions::new(urls.collect(), requests)
        }
    }
}

/// What a customer was told.
fn answered(tally: &Tally) -> MarkKind {
    match tally {
        Tally { sold: 1, .. } => MarkKind::Sold,
        Tally { refused: 1, .. } => MarkKind::SoldOut,
        Tally { fenced: 1, .. } => MarkKind::Refused,
        Tally { busy: 1, .. } => MarkKind::GaveUp,
        _ => MarkKind::Failed,
    }
}
