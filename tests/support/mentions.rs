//! Checks that a message contains certain data, such as a path, so that tests do not depend on its wording.

use std::fmt::Display;

/// Panics unless the text contains all `parts`, such as a path, a key or a number. The panic shows the whole text.
#[track_caller]
pub fn mentions(text: impl Display, parts: &[&str]) {
    let text = text.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}
