//! What a layer computes: its attributes, the shape that comes out, the parameters it owns, what files store of it. No memory, no
//! device: each backend plans its own way to run an [`Op`].
//!
//! A new op is a file here, a line in `list.rs`, and a file of the same name in each backend.

mod any;
mod feature_order;
mod limits;
mod list;
mod param;
mod shape;
mod spec;
mod stored;
mod window;

macro_rules! modules {
    ($($file:ident $name:ident,)*) => {
        $(mod $file;
        pub use $file::$name;)*
    };
}
crate::for_each_op!(modules);

pub use any::Op;
pub use feature_order::FeatureOrder;
pub use param::{Init, ParamSpec};
pub use pool::{PoolKind, Window};
pub use shape::Shape;
pub use spec::{OpSpec, Reads};
pub use stored::{KerasOrder, Stored, StoredTensor};
pub use window::same_pads;
