//! The index of a shard: the file `<shard>.idx`, which has lines of the form `offset size`. DALI's `tfrecord2idx`
//! writes the same format. A size includes the framing.

use std::path::{Path, PathBuf};

use base::text::push_decimal;

use crate::error::Error;
use crate::file::regular;
use crate::file::replace::{replace, suffixed};
use crate::format::record::OVERHEAD;

/// Maximum number of characters of a wrong line in a message.
const MAX_QUOTED: usize = 80;

/// Returns the path of a shard's index: `.idx` appended to the shard's file name.
pub fn index_path(shard: &Path) -> PathBuf {
    suffixed(shard, ".idx")
}

/// Writes the index of the shard at `shard` atomically. `entries` are (offset, size including framing) of its records.
pub fn write_index(shard: &Path, entries: &[(u64, u64)]) -> Result<(), Error> {
    replace(&index_path(shard), index_text(entries).as_bytes())
}

/// Returns true if the shard has an index with exactly these `entries`. Its text may be formatted differently.
pub fn index_matches(shard: &Path, entries: &[(u64, u64)]) -> bool {
    let length = entries.last().map_or(0, |(offset, size)| offset + size);
    let found = regular::read_to_string(&index_path(shard)).ok().and_then(|text| parse_index(&text, length).ok());
    found.is_some_and(|offsets| entries.iter().map(|&(offset, _)| offset).chain([length]).eq(offsets))
}

/// Formats the index of `entries`.
pub fn index_text(entries: &[(u64, u64)]) -> String {
    let mut text = String::with_capacity(entries.len() * 16);
    for (offset, size) in entries {
        push_decimal(*offset, &mut text);
        text.push(' ');
        push_decimal(*size, &mut text);
        text.push('\n');
    }
    text
}

/// Returns the start of each record, followed by `file`, the size of the shard in bytes. Returns an error message if
/// the index is wrong.
pub(crate) fn parse_index(text: &str, file: u64) -> Result<Vec<u64>, String> {
    let mut offsets = Vec::new();
    let mut end = 0u64;
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let mut words = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(offset)), Some(Ok(size)), None) = (words.next(), words.next(), words.next()) else {
            let begin: String = line.chars().take(MAX_QUOTED).collect();
            return Err(format!("line {number}: expected `offset size`, got \"{}\"", begin.escape_debug()));
        };
        if offset != end {
            return Err(format!("line {number}: expected offset {end}, where the record before it ends, got {offset}"));
        }
        if size < OVERHEAD {
            return Err(format!(
                "line {number}: a record of {size} bytes at {offset} is too small: expected at least {OVERHEAD} bytes, the length and \
                 checksums of a record without data"
            ));
        }
        end = offset.checked_add(size).filter(|&end| end <= file).ok_or_else(|| {
            format!("line {number}: a record of {size} bytes at {offset} does not fit into the shard, which has {file} bytes")
        })?;
        offsets.push(offset);
    }
    if end != file {
        return Err(format!("it lists records of {end} bytes in total, but the shard has {file} bytes"));
    }
    offsets.push(file);
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    #[test]
    fn an_index_must_cover_the_file_without_gaps() {
        assert_eq!(parse_index("0 20\n20 17\n", 37), Ok(vec![0, 20, 37]));
        assert_eq!(parse_index("", 0), Ok(vec![0]));
        for (text, parts) in [
            ("0 20\n20 17\n", &["37", "40"][..]),
            ("0 20\n21 19\n", &["line 2", "20", "21"]),
            ("0 20\n20 x\n", &["line 2", "offset size", "20 x"]),
            ("0 20 20\n", &["line 1", "offset size", "0 20 20"]),
            ("0 41\n", &["line 1", "41", "0", "40"]),
            ("0 5\n", &["line 1", "5", "0", "16"]),
            ("0 18446744073709551615\n", &["line 1", "18446744073709551615", "0", "40"]),
        ] {
            assert_mentions(&parse_index(text, 40).unwrap_err(), parts);
        }
    }
}
