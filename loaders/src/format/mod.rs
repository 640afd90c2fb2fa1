//! The formats of records.

pub mod example;
pub mod protobuf;
pub mod record;
