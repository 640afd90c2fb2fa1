//! Reads data sets that are there: describes, checks, measures and shows them, and makes missing indexes.

mod index;
mod info;
mod measure;
mod scan;
mod show;
mod stats;
mod verify;
mod walk;

pub use index::{Indexed, index};
pub use info::{FirstImage, Info, SplitInfo, info};
pub use show::{ShowOptions, Shown, show};
pub use stats::{Stats, stats};
pub use verify::{Bad, Report, verify};
