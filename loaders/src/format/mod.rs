//! What the files of a data set hold: TFRecords of tf.Example, indexes, and `dataset.json`.

pub mod example;
pub(crate) mod index;
pub(crate) mod manifest;
pub(crate) mod protobuf;
pub mod record;
