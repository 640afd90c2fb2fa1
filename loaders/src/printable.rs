//! Text of others (class names, paths, records of a data set) for terminals: what would move the cursor, change colours, answer as a
//! terminal, or turn the direction of the text is written out as `\u001b`, as in JSON.

use std::borrow::Cow;
use std::fmt::Write;

/// A name on one line: line breaks are written out too.
pub fn printable(text: &str) -> Cow<'_, str> {
    written_out(text, is_hidden)
}

/// The maximum name length in a table or list, in characters.
const SHOWN: usize = 60;

/// Formats a name for a table or list on a single line. Truncates long names, because the longest name sets the column width.
pub fn shown(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(SHOWN) {
        None => printable(name),
        Some((end, _)) => format!("{}...", printable(&name[..end])).into(),
    }
}

/// Text of one or several lines.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    written_out(text, |c| is_hidden(c) && c != '\n' && c != '\t')
}

/// Whether a terminal acts on a character in place of showing it.
fn is_hidden(c: char) -> bool {
    // embeddings, overrides and isolates of direction; separators of lines and paragraphs
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn written_out(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            // a String does not fail
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_written_out() {
        assert_eq!(printable("\u{1b}[2J\u{1b}]0;title\u{7}cat"), "\\u001b[2J\\u001b]0;title\\u0007cat");
        assert_eq!(printable("a\r\nb\tc\u{7f}\u{9b}31m"), "a\\u000d\\u000ab\\u0009c\\u007f\\u009b31m");
        assert_eq!(printable("\u{202e}gpj.tac"), "\\u202egpj.tac");
        assert_eq!(printable_lines("one\n\ttwo\r\u{1b}c"), "one\n\ttwo\\u000d\\u001bc");
        for plain in ["", "T-shirt/top", "Größe", "猫 🐈"] {
            assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain));
        }
    }

    #[test]
    fn long_names_are_cut() {
        let sixty = "ä".repeat(60);
        assert_eq!(shown(&sixty), sixty);
        assert_eq!(shown(&format!("{sixty}ä")), format!("{sixty}..."));
        assert_eq!(shown("a\nb"), "a\\u000ab");
    }

    #[test]
    fn json_stays_json() {
        let json = serde_json::json!({"class": "a\u{1b}[0m\u{9b}b\u{7f}\n"});
        let shown = printable_lines(&json.to_string()).into_owned();
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), json);
    }
}
