//! The embedded engine: directories, damage, faults, kills, groups and state logs.

mod damage;
mod directory;
mod faults;
mod foreign;
mod groups;
mod kill;
mod power;
mod state_log;
