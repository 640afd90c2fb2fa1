//! The file formats of a data set: TFRecords of tf.Example, indexes, and `dataset.json`.

pub(crate) mod bands;
pub mod example;
pub(crate) mod index;
pub(crate) mod manifest;
pub mod protobuf;
pub mod record;
