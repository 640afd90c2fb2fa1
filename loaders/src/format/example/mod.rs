//! tf.Example, the protobuf message in each record, with the few keys that an image needs. The wire format is in
//! `protobuf`.
//!
//! `Example { Features features = 1 }`, `Features { map<string, Feature> feature = 1 }`, `Feature { oneof: BytesList =
//! 1, FloatList = 2, Int64List = 3 }`, each list `repeated value = 1`. The key names are those of TensorFlow's ImageNet
//! scripts.

mod floats;
mod labels;
mod message;
mod parse;

pub use crate::fault::ExampleFault;
pub use floats::{BoundingBox, BoxLists, Boxes, FloatList, Floats};
pub(crate) use labels::label;
pub use labels::{LabelList, Labels, relabel};
pub use message::{Example, Format, encode, encode_with};
pub use parse::{parse, synset};
