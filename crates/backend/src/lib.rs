//! The interface that all devices implement: memory, planned operations, operations on flat arenas. There are three
//! devices: [`mod@reference`] has plain loops for tests, [`cpu`] uses oneDNN, and [`cuda`] uses cuDNN and its own
//! kernels. The crate `engine` decides what runs when.

mod across;
mod algorithms;
mod attention;
pub mod cpu;
pub mod cuda;
mod device;
mod draws;
mod error;
mod interface;
mod losses;
mod memory;
mod planned;
mod queue;
pub mod reference;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
pub mod update;

pub use across::Across;
pub use algorithms::{AlgorithmChoice, Algorithms, Implementation, Implementations};
pub use base::code_spec::{CodeFormat, CodeSpec, Codes, Draw, IntegerCodes, Moments};
pub use base::run_state::LossScale;
pub use device::{DeviceKind, DeviceSettings, Gpu, Precision, Unavailable};
pub use draws::DrawKey;
pub use error::Error;
pub use interface::{Backend, Cores, Regions};
pub use loaders::CropRect;
pub use losses::{
    CrossEntropy, Distance, LossForm, LossScaling, LossSums, Objective, SoftLoss, SoftTargets, Teaching, place_of_best,
};
pub use memory::{Arena, Buffer, DeviceMemory, MemoryLimit, ParamFormat, Region, Slot, TensorDesc};
pub use planned::{
    Gradients, Input, Keeps, Pass, PassInput, PlanRequest, Planned, ReadThrough, ShapedShortcut, Traffic,
};
pub use queue::{Collective, Collectives, DeviceCodec, Queue, Ready, Reduction};
pub use update::{Norms, ParamGroup, Rule, Update};
