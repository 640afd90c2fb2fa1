//! The reference for tests: every operation as plain loops over NCHW, with f32 values and f64 sums. It is slow, but
//! short and easy to check.
//!
//! Each operation's file has the same name as in [`net::op`].

mod copies;
mod device;
mod loss;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(mod $file;)*
    };
}
net::for_each_op!(modules);

pub use device::{HostBuf, Reference};
