//! Real servers for tests: started on free ports, in folders of their own, and gone with the test.

pub mod certificates;
pub mod disk;
pub mod etcd;
pub mod galera;
pub mod independent;
mod leash;
pub mod mariadb;
pub mod migration;
pub mod pgbouncer;
pub mod ports;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod redis_cluster;
pub mod replicated;
mod shim;
pub mod slow_disk;
pub mod wall_clock;
pub mod wire;
pub mod zookeeper;
pub mod zookeeper_numbers;
pub mod zookeeper_session;
