//! The tests of this crate in one binary. Each module tests one part or one kind of input. The test that counts the
//! allocations of a whole process has its own binary, `allocations.rs`.

mod bands;
mod batches;
mod common;
mod entry_points;
mod exif;
mod faults;
mod golden;
mod hostile;
mod images;
mod multi_label;
mod policies;
mod sigbus;
mod storage;
mod targets;
mod varied;

/// Tests the helper that other tests use for messages.
#[test]
fn messages_mention_whole_words_and_numbers() {
    let text = "line 12: a_crop of 8x8 needs 1.5 of -3, not 1,100; write \"flip\"";
    for part in ["12", "line 12", "a_crop of 8x8", "1.5", "-3", "1,100", "\"flip\"", "flip"] {
        assert!(common::is_mentioned(text, part), "{part}");
    }
    for part in ["2", "line 1", "crop", "8", "1", "5", "3", "100", "100; write", "fli", "eeds 1.5", "-3, not 1"] {
        assert!(!common::is_mentioned(text, part), "{part}");
    }
}
