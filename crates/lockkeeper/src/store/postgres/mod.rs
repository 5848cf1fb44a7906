//! Locks in a PostgreSQL database.
