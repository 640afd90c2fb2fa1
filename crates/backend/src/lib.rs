//! What a device must be able to do, and nothing about any device: memory, planned operations, passes over flat arenas.
//! [`mod@reference`] is the oracle in plain loops, [`cpu`] runs on oneDNN, [`cuda`] on cuDNN and kernels of its own. `nn` decides what
//! runs when.

mod across;
mod algorithms;
mod arena;
mod buffer;
mod collectives;
mod cores;
pub mod cpu;
pub mod cuda;
mod device_codec;
mod device_kind;
mod device_memory;
mod draws;
mod error;
mod implementations;
mod interface;
mod loss;
mod loss_scale;
mod param_format;
mod pass_input;
mod planned;
mod precision;
mod queue;
pub mod reference;
mod region;
mod soft_loss;
mod tensor;
pub mod update;

pub use across::Across;
pub use algorithms::{AlgorithmChoice, Algorithms};
pub use arena::{Arena, Slot};
pub use base::code_spec::{CodeFormat, CodeSpec, Codes, Draw, IntegerCodes, Moments};
pub use buffer::Buffer;
pub use collectives::{Collective, Collectives, Ready};
pub use cores::{Cores, Regions};
pub use device_codec::DeviceCodec;
pub use device_kind::{DeviceKind, DeviceSettings, Gpu, Unavailable};
pub use device_memory::DeviceMemory;
pub use draws::DrawKey;
pub use error::Error;
pub use implementations::{Implementation, Implementations};
pub use interface::Backend;
pub use loss::{CrossEntropy, LossSums};
pub use loss_scale::{LossScale, LossScaling};
pub use param_format::ParamFormat;
pub use pass_input::{CropRect, Input, PassInput};
pub use planned::{Gradients, Keeps, Pass, PlanRequest, Planned, ShortcutOf, Through, Traffic};
pub use precision::Precision;
pub use queue::Queue;
pub use region::Region;
pub use soft_loss::{LossForm, Objective, SoftLoss, SoftTargets, Teaching, place_of_best};
pub use tensor::TensorDesc;
pub use update::{Norms, ParamGroup, Rule, Update};
