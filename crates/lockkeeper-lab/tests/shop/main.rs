//! The shop, by real instances: what it sells under which lock, whichever process is killed, and what it refuses.

#[path = "../common/mod.rs"]
mod common;

mod command;
mod crowd;
mod few;
mod flash_sale;
mod gate;
mod http;
mod scene;
