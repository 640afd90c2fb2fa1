//! The CPU backend. Convolutions and matrix products are oneDNN's, in blocked layouts from the first convolution to the last
//! pool; the passes between them (batch norm with residual and ReLU, pooling, LRN, optimizer) are loops of our own that read
//! memory once, on oneDNN's thread pool.

mod affine;
mod backend;
mod bf16;
mod buf;
mod device;
mod dropout;
mod elementwise;
mod flat;
mod format;
mod isa;
mod layout;
mod loss;
mod lrn;
mod narrow;
mod norm;
mod onednn;
mod pool;
mod product;
mod shortcut;
mod signals;
mod threads;
mod update;
mod winograd;

pub use buf::AlignedBuf;
pub use device::Cpu;
pub use format::Format;
