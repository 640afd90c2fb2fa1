//! The CPU backend. Convolutions and matrix products are oneDNN's or our own, in blocked layouts from the first convolution to the last
//! pool; the passes between them (batch norm with residual and ReLU, pooling, LRN, optimizer) are loops of our own that read
//! memory once, on oneDNN's thread pool.
//!
//! An op's file is named as in [`net::op`].

mod affine;
mod backend;
mod bf16;
mod buf;
mod channel_sums;
mod choices;
mod chosen;
mod depthwise;
mod device;
mod direction;
mod environment;
mod exp;
mod few_channels;
mod flat;
mod format;
mod framed;
mod fusion;
mod gauge;
mod geometry;
mod implementations;
mod isa;
mod kind;
mod lanes;
mod layout;
mod loss;
mod moments;
mod normal;
mod number;
mod onednn;
mod own_gradient;
mod panels;
mod per_channel;
mod product;
mod regions;
mod register_tile;
mod relaid;
mod relu;
mod signals;
mod soft_loss;
mod spread;
mod sys;
mod team;
mod threads;
mod unblocked;
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
pub use device::Cpu;
pub use format::Format;
pub use kind::CpuDevice;
pub use onednn::version as library;
