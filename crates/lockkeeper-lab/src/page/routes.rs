//! The ways in.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde_json::{Value, json};

use super::listeners::Events;
use super::locks::Locks;
use super::runs::Runs;
use super::{assets, gate};
use crate::chapters::{CHAPTERS, Chapter};

/// How often a silent stream says that it is there.
const ALIVE: Duration = Duration::from_secs(10);

/// What the requests share.
#[derive(Debug)]
pub struct Site {
    pub runs: Arc<Runs>,
    pub locks: Arc<Locks>,
    /// The store that is shown, without a password.
    pub store: String,
    /// Whether other machines cannot reach us.
    pub only_loopback: bool,
}

type Shared = State<Arc<Site>>;

pub fn router(site: Site) -> Router {
    let only_loopback = site.only_loopback;
    let mut router = Router::new();
    for asset in assets::ALL {
        router = router.route(asset.path, get(|| async { asset.into_response() }));
    }
    router
        .route("/api/lab", get(lab))
        .route("/api/lab/events", get(lab_events))
        .route("/api/lab/run", post(run_all))
        .route("/api/lab/cancel", post(cancel_all))
        .route("/api/lab/{chapter}/run", post(run))
        .route("/api/lab/{chapter}/cancel", post(cancel))
        .route("/api/locks/events", get(locks_events))
        .with_state(Arc::new(site))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here; see /\n") })
        .layer(middleware::from_fn_with_state(only_loopback, gate::gate))
}

/// What does not change while the page is open.
async fn lab(State(site): Shared) -> Json<Value> {
    let chapters = CHAPTERS.iter().map(|chapter| {
        json!({
            "id": chapter.id,
            "slug": chapter.slug,
            "title": chapter.title,
            "why": chapter.why,
            "naive": chapter.naive.about,
            "ours": chapter.ours.about,
            "missing": chapter.needs.missing(),
        })
    });
    let chapters: Vec<Value> = chapters.collect();
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({ "version": version, "store": site.store, "chapters": chapters }))
}

async fn lab_events(State(site): Shared) -> Response {
    stream(site.runs.listen())
}

async fn locks_events(State(site): Shared) -> Response {
    stream(site.locks.listen())
}

fn stream(events: Option<impl Events>) -> Response {
    let Some(events) = events else {
        let message = "the page is open in too many windows; close some\n";
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    let alive = KeepAlive::new().interval(ALIVE);
    Sse::new(events).keep_alive(alive).into_response()
}

async fn run(State(site): Shared, Path(chapter): Path<String>) -> Response {
    with_chapter(&chapter, |chapter| site.runs.run(&[chapter]))
}

async fn cancel(State(site): Shared, Path(chapter): Path<String>) -> Response {
    with_chapter(&chapter, |chapter| site.runs.cancel(chapter.id))
}

async fn run_all(State(site): Shared) -> StatusCode {
    let all: Vec<&Chapter> = CHAPTERS.iter().collect();
    site.runs.run(&all);
    StatusCode::NO_CONTENT
}

async fn cancel_all(State(site): Shared) -> StatusCode {
    site.runs.cancel_all();
    StatusCode::NO_CONTENT
}

fn with_chapter(name: &str, act: impl FnOnce(&'static Chapter)) -> Response {
    match crate::chapters::find(name) {
        Some(chapter) => {
            act(chapter);
            StatusCode::NO_CONTENT.into_response()
        }
        None => (StatusCode::NOT_FOUND, "there is no such chapter\n").into_response(),
    }
}
