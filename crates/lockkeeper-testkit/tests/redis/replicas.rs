//! `replicas=N`.
