//! The computations of the backend. Each operation of `net::op` has a file with its name. The other files have the
//! passes over arenas, the gradient codecs, the network's input, parameters in 16 bits, and plans that several operations
//! share.

pub mod bias;
pub mod codec;
pub mod fold;
pub mod input;
pub mod loss;
pub mod narrow_params;
pub mod unary;
pub mod update;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(pub mod $file;)*
    };
}
net::for_each_op!(modules);
