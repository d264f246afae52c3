//! The machines alone: small scripted worlds, and many random ones with failures, kills and publications that come late.

mod cases;
mod schedules;
mod world;
