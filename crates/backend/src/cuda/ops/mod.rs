//! What the backend computes: one op of `backend::op` a file of the same name, the passes over arenas, the codecs of gradients, the
//! network's input, parameters in 16 bits.

pub mod bias;
pub mod codec;
pub mod fold;
pub mod halves;
pub mod input;
pub mod loss;
pub mod update;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(pub mod $file;)*
    };
}
net::for_each_op!(modules);
