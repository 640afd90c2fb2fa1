//! Which split a name stands for: of a folder, a file, a column's value.

/// The split that a word stands for, in any case.
pub(crate) fn of_word(word: &str) -> Option<&'static str> {
    match word.to_lowercase().as_str() {
        "train" | "training" => Some("train"),
        "val" | "valid" | "validation" | "dev" => Some("validation"),
        "test" | "testing" => Some("test"),
        _ => None,
    }
}

/// The split in the name of a file without its ending, such as `imagenet-val-000012`; `train` if it names none.
pub(crate) fn of_file(stem: &str) -> &'static str {
    stem.split(['-', '_', '.']).rev().find_map(of_word).unwrap_or("train")
}

/// Splits in the order in which a source lists them, `train` first.
pub(crate) fn rank(split: &str) -> u8 {
    match split {
        "train" => 0,
        "validation" => 1,
        "test" => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_splits() {
        let names = ["imagenet-val-000012", "train_3", "test", "shard-000001", "my.Validation.2", "cat-trainer-1"];
        assert_eq!(names.map(of_file), ["validation", "train", "test", "train", "validation", "train"]);
        assert_eq!(["VAL", "fold1"].map(of_word), [Some("validation"), None]);
    }
}
