//! The original file name of an image, for people who want to look at it.

use loaders::Split;

/// Returns the original file name in an image's record. Returns an empty string if there is no name or the record cannot be read.
pub fn file_name(split: &Split, id: u64) -> String {
    let mut copy = Vec::new();
    split.record(id, &mut copy).map(|(example, _)| example.filename.to_string()).unwrap_or_default()
}
