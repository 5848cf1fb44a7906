//! Sentinels.
