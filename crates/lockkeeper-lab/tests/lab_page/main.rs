//! The laboratory's page, in a real browser: chapters that are run from it, a store's locks, and who is let in.

#[path = "../common/mod.rs"]
mod common;

mod browser;
mod chapters;
mod crowd;
mod frame;
mod gate;
mod http;
mod lab;
mod locks;
mod looks;
mod present;
mod scripted;
mod waiting;
