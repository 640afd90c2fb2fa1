//! Tables of commas (RFC 4180).

use loaders::printable;

/// A field, on one line.
pub fn field(text: &str) -> String {
    let text = printable(text).to_string();
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(field("Ankle boot"), "Ankle boot");
        assert_eq!(field("tench, Tinca \"tinca\""), "\"tench, Tinca \"\"tinca\"\"\"");
        assert!(!field("a\nb").contains('\n'));
    }
}
