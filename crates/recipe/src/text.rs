//! The text of a recipe: the file must be UTF-8, and then TOML.

use toml::Table;

use super::error::Error;

/// The bytes of a file as text.
///
/// # Errors
/// With the line, and how to save the file.
pub(super) fn decode(bytes: Vec<u8>, file: &str) -> Result<String, Error> {
    let wide = [[0xff, 0xfe], [0xfe, 0xff]].iter().any(|mark| bytes.starts_with(mark));
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
        let what = match error.as_bytes().get(at) {
            _ if wide => "the file is UTF-16".into(),
            Some(byte) => format!("line {line} holds the byte 0x{byte:02x}, which is not UTF-8"),
            None => "the file is not UTF-8".into(),
        };
        Error::Syntax { file: file.into(), why: format!("{what}; save the file as UTF-8") }
    })
}

/// A text as TOML.
///
/// # Errors
/// With line and column, or the number that TOML has no integer for.
pub(super) fn parse(text: &str, file: &str) -> Result<Table, Error> {
    text.parse().map_err(|error| match beyond_integers(&error) {
        Some(number) => {
            let line = text.lines().position(|line| line.contains(&number));
            let place = line.map_or_else(String::new, |line| format!("line {}: ", line + 1));
            let why = format!("{place}{number} is no integer of 64 bits; an integer is at most {}", i64::MAX);
            Error::Syntax { file: file.into(), why }
        }
        None => syntax(file, error),
    })
}

pub(super) fn syntax(file: &str, error: toml::de::Error) -> Error {
    Error::Syntax { file: file.into(), why: error.to_string() }
}

/// The integer of more than 64 bits that an error is about, which the parser calls by a type of Rust.
fn beyond_integers(error: &toml::de::Error) -> Option<String> {
    let (_, rest) = error.message().split_once("integer `")?;
    let (number, rest) = rest.split_once("` as ")?;
    (rest.starts_with("i128") || rest.starts_with("u128") || rest.starts_with("u64")).then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_utf_8_says_where_and_what_to_do() {
        let refused = |bytes: &[u8]| decode(bytes.to_vec(), "a.toml").unwrap_err().to_string();
        let text = refused(b"model = \"lenet\"\ndata = \"caf\xe9\"\n");
        assert_eq!(
            text,
            "a.toml: not valid TOML: line 2 holds the byte 0xe9, which is not UTF-8; save the file as UTF-8"
        );
        assert!(refused(b"\xff\xfem\0o\0").contains("the file is UTF-16; save the file as UTF-8"));
        assert_eq!(decode("data = \"caf\u{e9}\"".into(), "a.toml").unwrap(), "data = \"caf\u{e9}\"");
    }

    #[test]
    fn an_integer_that_toml_has_not_is_told_by_its_line() {
        let refused = |text: &str| parse(text, "a.toml").unwrap_err().to_string();
        let text = refused("seed = 1\nbatch = 99999999999999999999\n");
        let rest = "line 2: 99999999999999999999 is no integer of 64 bits; an integer is at most 9223372036854775807";
        assert_eq!(text, format!("a.toml: not valid TOML: {rest}"));
        assert!(refused("seed = = 1").contains("line 1"));
    }
}
