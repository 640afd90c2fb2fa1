//! What a run has left behind: its log read back, its recipe, and what both say of its state.

mod compare;
mod line;
mod log;
mod run;

pub use compare::{Differing, Parting, compare};
pub use line::{EndLine, EpochLine, EvalLine, ExchangeLine, LayersLine, SpreadLine, StartLine, StepLine, TensorLine};
pub use log::{Layers, Log, Unread};
pub use run::{Error, Run, State, find};
