//! What the browser sees.
