//! Failures of other products that were reported, each as one experiment on the bus and the pinned broker. The number of a test is that of
//! its report (`docs/reported-failures.md`). Faults are made by hand, and what follows them is waited for where it can be seen.

mod clocks;
mod consumers;
mod gaps;
mod ids;
mod memory;
mod midway;
mod outages;
mod peer;
mod scripted;
mod sizes;
mod slow;
