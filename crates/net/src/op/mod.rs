//! The computation of a layer: its attributes, output shape, parameters, and how files store it. Independent of memory
//! and devices: each backend plans how to run an [`Op`].
//!
//! A new operation needs a file here, a line in `list.rs`, and a file with the same name in each
//! backend and in the crate `formats`.

mod feature_order;
mod list;
mod shape;
mod spec;
pub(crate) mod toml_keys;
pub(crate) mod toml_value;
mod windows;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(mod $file;
        pub use $file::$name;)*
    };
}
crate::for_each_op!(modules);

pub use attention::{HIDDEN, LEAST_NORM, MASK, MOST_SCALE, PositionBias};
pub use feature_order::FeatureOrder;
pub use list::Op;
pub use pool::{PoolKind, Window};
pub use shape::{Shape, same_padding, same_pads};
pub use space_to_depth::PixelChannel;
pub use spec::{Init, KerasOrder, OpSpec, ParamSpec, Reads, Stored, StoredTensor};
pub use windows::Windows;
