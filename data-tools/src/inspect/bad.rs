//! A fault of a shard, for people and for scripts.

use super::walk::Position;
use loaders::printable;
use serde_json::json;
use std::fmt;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// The shard's file name.
    pub shard: String,
    /// Number of the record in its shard, from 0; `None` where the shard as a whole is at fault.
    pub record: Option<u64>,
    /// Byte offset of the record.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl Bad {
    /// A fault of a whole shard.
    pub(super) fn shard(shard: &str, what: String) -> Self {
        Bad { shard: shard.to_string(), record: None, offset: None, what }
    }

    /// A fault of one record.
    pub(super) fn record(shard: &str, at: Position, what: String) -> Self {
        Bad { shard: shard.to_string(), record: Some(at.record), offset: Some(at.offset), what }
    }

    /// The fault for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        json!({"shard": self.shard, "record": self.record, "offset": self.offset, "what": self.what})
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shard, what) = (printable(&self.shard), printable(&self.what));
        match (self.record, self.offset) {
            (Some(record), Some(offset)) => {
                write!(f, "{shard}, record {record} at byte {offset}: {what}")
            }
            _ => write!(f, "{shard}: {what}"),
        }
    }
}
