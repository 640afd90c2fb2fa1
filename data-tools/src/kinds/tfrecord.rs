//! TFRecords of tf.Example, plain or compressed by GZIP or ZLIB, of TensorFlow's scripts or of TensorFlow Datasets. Their records are
//! copied as they are, shard by shard: nothing here reads a sample.

use super::kind::{Kind, Open};

/// TFRecords.
pub(super) const TFRECORD: Kind = Kind {
    name: "tfrecord",
    about: "TFRecords of tf.Example, also GZIP- or ZLIB-compressed ones and those of TensorFlow Datasets",
    open: Open::Records,
};
