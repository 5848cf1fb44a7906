//! The shop: an HTTP service that reads stock, decides and writes back.
