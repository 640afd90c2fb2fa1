//! The oracle: every operation in plain loops over plain NCHW, f32 values with f64 accumulators. Slow, short, easy to check.
//!
//! An op's file is named as in [`net::op`].

mod device;
mod loss;
mod update;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(mod $file;)*
    };
}
net::for_each_op!(modules);

pub use device::{HostBuf, Reference};
