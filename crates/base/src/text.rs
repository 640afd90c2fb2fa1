//! Text for display: decimal digits, untrusted names made safe for terminals, and spelling suggestions.

use std::borrow::Cow;
use std::fmt::{Display, Write};

/// Writes the decimal digits of a number (at most 20) to the end of `digits` and returns them. Signal handlers may call
/// this function.
#[inline]
pub fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Appends the decimal digits of a number.
pub fn push_decimal(number: u64, out: &mut String) {
    // Digits are always valid UTF-8.
    out.push_str(str::from_utf8(decimal(number, &mut [0; 20])).unwrap_or_default());
}

/// Formats a number with separators: `60000` as `60,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats rows of cells as lines with aligned columns, two spaces apart.
pub fn table(rows: &[impl AsRef<[String]>]) -> String {
    let rows = || rows.iter().map(AsRef::as_ref);
    let columns = rows().map(<[String]>::len).max().unwrap_or(0);
    let width = |at: usize| rows().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows().map(line).collect::<Vec<_>>().join("\n")
}

// Makes untrusted text (class names, paths, records of a data set) safe for terminals. Characters that would move the
// cursor, change colours, trigger an answer from the terminal or change the text direction are written as `\u001b`, as
// in JSON.

/// Makes a name safe and keeps it on one line. Line breaks are escaped too.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden)
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

/// Makes text of one or more lines safe.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_hidden(c) && c != '\n' && c != '\t')
}

/// Returns true if a terminal would act on the character instead of showing it.
fn is_hidden(c: char) -> bool {
    // Direction marks, embeddings, overrides and isolates, and separators of lines and paragraphs.
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            // Writing to a `String` cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Returns the candidate that `word` most probably meant, or `None` if no candidate is similar.
///
/// A candidate is similar if it needs at most (length of the longer word) / 3 edits, but two edits are always allowed.
/// An edit inserts, deletes or replaces a letter, or swaps two neighbours. Letter case is ignored. Among equally
/// similar candidates the first one is returned.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let close = candidates.iter().filter_map(|candidate| {
        let candidate_word = candidate.to_lowercase();
        let longer = word.chars().count().max(candidate_word.chars().count());
        let distance = strsim::osa_distance(&word, &candidate_word);
        // Two words without a common letter at the same place are not a typing error.
        (distance <= (longer / 3).max(2) && distance < longer).then_some((distance, *candidate))
    });
    close.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Returns `; did you mean "x"?` for the most similar candidate, or an empty string. For the end of an error message.
pub fn did_you_mean(word: &str, candidates: &[&str]) -> String {
    nearest(word, candidates).map(|found| format!("; did you mean \"{found}\"?")).unwrap_or_default()
}

/// Formats a number with its noun, such as `1 rank`, `2 ranks` or `3 classes`.
pub fn plural(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let end = match noun {
        _ if number == "1" => "",
        noun if noun.ends_with("ss") || noun.ends_with("tch") => "es",
        _ => "s",
    };
    format!("{number} {noun}{end}")
}

/// Appends advice to a problem: `problem; advice`, or `problem? Advice` if the problem ends with a question.
pub fn with_advice(problem: &str, advice: &str) -> String {
    let mut letters = advice.chars();
    match letters.next().filter(|_| problem.ends_with('?')) {
        Some(first) => format!("{problem} {}{}", first.to_uppercase(), letters.as_str()),
        None => format!("{problem}; {advice}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_formatted() {
        let powers = (0..20).map(|power| 10u64.pow(power));
        for number in powers.flat_map(|power| [power - 1, power, power + 7]).chain([u64::MAX]) {
            let mut text = "n".to_string();
            push_decimal(number, &mut text);
            assert_eq!(text, format!("n{number}"));
        }
    }

    #[test]
    fn separators_are_between_groups_of_three_digits() {
        assert_eq!([0, 999, 1234, 1_281_167].map(grouped), ["0", "999", "1,234", "1,281,167"]);
    }

    #[test]
    fn columns_stand_below_each_other() {
        let row = |first: &str, last: &str| [first, "lenet", last].map(String::from);
        let text = table(&[row("run", "best"), row("a-long-näme", ""), row("b", "9 %")]);
        assert_eq!(text, "run          lenet  best\na-long-näme  lenet\nb            lenet  9 %");
        assert_eq!(table(&[[]; 0]), "");
    }

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

    #[test]
    fn nearest_finds_slips_and_leaves_strangers() {
        let models = ["lenet", "lenet-caffe", "cifarnet", "resnet20", "resnet32"];
        assert_eq!(nearest("resnet2", &models), Some("resnet20"));
        assert_eq!(nearest("ResNet32", &models), Some("resnet32"));
        assert_eq!(nearest("lnet", &models), Some("lenet"));
        assert_eq!(nearest("lenetcaffe", &models), Some("lenet-caffe"));
        assert_eq!(nearest("random_corp", &["flip", "random_crop"]), Some("random_crop"));
        assert_eq!(nearest("transformer", &models), None);
        assert_eq!(nearest("xy", &["ab"]), None);
        assert!(did_you_mean("filp", &["flip"]).contains("\"flip\""));
        assert_eq!(did_you_mean("zzzzzz", &["flip"]), "");
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!([plural(1, "rank"), plural(2, "rank")], ["1 rank", "2 ranks"]);
        assert_eq!(
            [plural("1", "class"), plural(0, "batch"), plural(3, "epoch")],
            ["1 class", "0 batches", "3 epochs"]
        );
    }

    #[test]
    fn advice_after_a_question_is_a_sentence() {
        assert_eq!(with_advice("no file", "name another"), "no file; name another");
        assert_eq!(with_advice("did you mean x?", "name another"), "did you mean x? Name another");
    }
}
