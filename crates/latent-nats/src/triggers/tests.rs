//! Triggers without a broker.
