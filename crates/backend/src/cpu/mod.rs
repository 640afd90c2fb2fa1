//! The CPU backend. Convolutions and matrix products are oneDNN's or our own, in blocked layouts from the first convolution to the last
//! pool; the passes between them (batch norm with residual and ReLU, pooling, LRN, optimizer) are loops of our own that read
//! memory once, on oneDNN's thread pool.
//!
//! An op's file is named as in [`net::op`].

mod affine;
mod algorithms;
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
mod relaid;
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
