//! The guest `behave`, by what is tested.

mod cached;
mod cells;
mod completions;
mod confinement;
mod context;
mod logging;
mod outcomes;
mod publishing;
mod reruns;
