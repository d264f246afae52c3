//! The embedded engine: directories, damage, faults, kills, groups and state logs.

mod costs;
mod cuts;
mod damage;
mod derived;
mod directory;
mod faults;
mod flips;
mod foreign;
mod groups;
mod holders;
mod injected;
mod kill;
mod numbers;
mod open_damage;
mod power;
mod power_again;
mod recovery_faults;
mod retention;
mod retention_concurrent;
mod retention_faults;
mod retention_model;
mod schemas;
mod state_log;
mod together;
mod warnings;
