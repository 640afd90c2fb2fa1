//! Parses `name(1, 2.5)`.

/// A name and its numbers.
#[derive(Debug, PartialEq)]
pub(super) struct Call<'a> {
    pub name: &'a str,
    pub arguments: Vec<f64>,
}

/// Reads `name`, `name()` or `name(number, ...)`.
pub(super) fn parse(text: &str) -> Result<Call<'_>, String> {
    let text = text.trim();
    let (name, arguments) = match text.split_once('(') {
        None => (text, Vec::new()),
        Some((name, rest)) => {
            let inside = rest.strip_suffix(')').ok_or("expected `)` at the end")?.trim();
            let arguments =
                if inside.is_empty() { Vec::new() } else { inside.split(',').map(number).collect::<Result<_, _>>()? };
            (name.trim(), arguments)
        }
    };
    Ok(Call { name, arguments })
}

fn number(word: &str) -> Result<f64, String> {
    let word = word.trim();
    word.parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())
        .ok_or_else(|| format!("expected a number, got \"{}\"", word.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls() {
        let call = |name, arguments: &[f64]| Ok(Call { name, arguments: arguments.to_vec() });
        assert_eq!(parse("flip"), call("flip", &[]));
        assert_eq!(parse(" flip( ) "), call("flip", &[]));
        assert_eq!(parse("contrast(0.2, 1.8)"), call("contrast", &[0.2, 1.8]));
        for (text, part) in [
            ("pad_crop(4", "expected `)`"),
            ("pad_crop(four)", "got \"four\""),
            ("pad_crop(4,)", "got \"\""),
            ("pad_crop(inf)", "got \"inf\""),
        ] {
            assert!(parse(text).unwrap_err().contains(part), "{text}");
        }
    }
}
