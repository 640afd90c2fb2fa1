//! What a layer computes: its attributes, the shape that comes out, the parameters it owns, what files store of it. No memory, no
//! device: each backend plans its own way to run an [`Op`].
//!
//! A new op is a file here, a line in `list.rs`, and a file of the same name in each backend.

mod feature_order;
mod list;
mod shape;
mod spec;
mod stored;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(mod $file;
        pub use $file::$name;)*
    };
}
crate::for_each_op!(modules);

pub use feature_order::FeatureOrder;
pub use list::Op;
pub use pool::{PoolKind, Window};
pub use shape::{Shape, same_pads};
pub use spec::{Init, OpSpec, ParamSpec, Reads};
pub use stored::{KerasOrder, Stored, StoredTensor};
