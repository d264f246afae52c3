//! The guest `behave`, by what is tested.

mod cells;
mod confinement;
mod context;
mod logging;
mod outcomes;
mod publishing;
