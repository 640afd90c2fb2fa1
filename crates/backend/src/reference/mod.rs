//! The oracle: every operation in plain loops over plain NCHW, f32 values with f64 accumulators. Slow, short, easy to check.
//!
//! An op's file is named as in [`net::op`].

mod backend;
mod device;
mod host_buf;
mod loss;
mod soft_loss;
mod update;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(mod $file;)*
    };
}
net::for_each_op!(modules);

pub use device::Reference;
pub use host_buf::HostBuf;
