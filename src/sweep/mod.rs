//! A sweep: one training for each combination of some values of a recipe, each a process of its own, and a table of what came of them.

mod grid;
mod table;
mod training;

pub use grid::{Grid, Point};
pub use table::{found, object, table};
pub use training::{Outcome, Sweep};
