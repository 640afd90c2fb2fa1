//! Reading a call such as `name(1, 2.5)`.

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

/// The name at the least edit distance; the first of equals. Empty if there are no names.
pub(super) fn nearest<'n>(given: &str, names: &[&'n str]) -> &'n str {
    names.iter().min_by_key(|name| edit_distance(given, name)).copied().unwrap_or("")
}

/// Insertions, deletions and substitutions of characters (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
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

    #[test]
    fn distances() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(nearest("random_corp", &["flip", "random_crop"]), "random_crop");
    }
}
