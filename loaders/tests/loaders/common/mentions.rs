//! Checks the data in a message without comparing its sentence. Unit tests of this crate include this file too.

/// Panics with the whole text unless it mentions each of `parts`, as whole words and whole numbers: `1 and 8` mentions
/// "1" and "1 and 8", but `1.5`, `-1` and `1,100` do not mention "1" or "100".
#[track_caller]
pub fn assert_mentions(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(is_mentioned(text, part), "no \"{part}\" in \"{text}\"");
    }
}

/// Returns true if the text contains `part` as whole words and whole numbers.
pub fn is_mentioned(text: &str, part: &str) -> bool {
    text.match_indices(part).any(|(at, _)| is_whole(&text[..at], part, &text[at + part.len()..]))
}

/// Returns true if `part` between `before` and `after` begins and ends with a whole word or number, or with another
/// character.
fn is_whole(before: &str, part: &str, after: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let is_digit = |c: char| c.is_ascii_digit();
    let starts = !part.starts_with(is_word) || !before.ends_with(is_word);
    let starts_number = !part.starts_with(is_digit) || !before.ends_with(['-', '.', ',']);
    let ends = !part.ends_with(is_word) || !after.starts_with(is_word);
    let goes_on = after.strip_prefix(['.', ',']).is_some_and(|rest| rest.starts_with(is_digit));
    starts && starts_number && ends && !(part.ends_with(is_digit) && goes_on)
}
