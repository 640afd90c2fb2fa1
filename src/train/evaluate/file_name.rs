//! The file that an image of a data set was made of, for people who look for it.

use loaders::Split;

/// The name that the record of an image keeps of its file; empty for a record without one, and for one that cannot be read.
pub fn file_name(split: &Split, id: u64) -> String {
    let mut copy = Vec::new();
    split.record(id, &mut copy).map(|(example, _)| example.filename.to_string()).unwrap_or_default()
}
