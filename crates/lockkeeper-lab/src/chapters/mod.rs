//! One experiment a file.
