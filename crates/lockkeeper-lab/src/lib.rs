//! The shop that must never oversell, and the laboratory that shows on real servers why each simpler lock
//! fails.
//!
//! # Layout
//! - [`shop`]: the HTTP service of the story, its stock, and the load generator
//! - [`chapters`]: one experiment a file, each a naive lock and ours in the same scene
//! - [`scene`]: what experiments are made of: processes, servers, faults, a timeline, a verdict
//! - [`page`]: what the browser sees, live
//! - `server`: HTTP for both the shop and the page; `open_files`: how many connections there can be
//! - [`words`]: what is said in a terminal
//!
//! Locks come from the public API of `lockkeeper`; naive locks and private servers from `lockkeeper-testkit`.

pub mod chapters;
mod open_files;
pub mod page;
pub mod scene;
mod server;
pub mod shop;
mod text;
pub mod words;

pub use text::{Text, told};
