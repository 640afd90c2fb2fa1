//! The CPU backend. oneDNN or our own kernels compute convolutions and matrix products, in blocked layouts from the
//! first convolution to the last pool. The operations between them (batch norm with residual and ReLU, pooling, LRN,
//! optimizer) are loops of our own on oneDNN's thread pool.
//!
//! The file of an operation has the same name as in [`net::op`].

mod affine;
mod algorithms;
mod attention_window;
mod backend;
mod buf;
mod choices;
mod device;
mod divide;
mod flat;
mod framed;
mod fusion;
mod gauge;
mod isa;
mod lanes;
mod layout;
mod loss;
mod moments;
mod number;
mod onednn;
mod own_gradient;
mod panels;
mod product;
mod register_tile;
mod relayout;
mod spread;
mod sys;
mod threads;
mod update;
mod vector;
mod version;
mod winograd;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(mod $file;)*
    };
}
net::for_each_op!(modules);

pub use buf::AlignedBuf;
pub use device::{Cpu, CpuDevice};
pub use layout::Format;
pub use onednn::version as library;
