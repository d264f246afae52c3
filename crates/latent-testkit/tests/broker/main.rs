//! The fixture against the real broker.
