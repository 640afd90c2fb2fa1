//! Formats numbers, sizes and lists for messages, and recognises texts with a fixed form.

use std::path::Path;

pub(crate) use base::text::grouped as count;
use base::text::{printable, shown};

/// Formats a size: `48273612` as `46.0 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Formats a number with a noun: `1 record`, `3 records`.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    base::text::plural(count(n), noun)
}

/// Formats the number of classes, or the number of targets if labels are numbers: `10 classes`, `2 targets`.
pub(crate) fn labels(manifest: &loaders::Manifest) -> String {
    match manifest.targets.len() {
        0 => base::text::plural(manifest.classes.len(), "class"),
        n => plural(n as u64, "target"),
    }
}

/// Formats a number of indexes: `1 index`, `10 indexes`.
pub(crate) fn indexes(n: u64) -> String {
    format!("{} index{}", count(n), if n == 1 { "" } else { "es" })
}

/// Strips the byte order mark that some editors write at the start of a file.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Returns true for a WordNet id: `n` followed by eight digits.
pub(crate) fn is_wnid(name: &str) -> bool {
    name.len() == 9 && name.starts_with('n') && name[1..].bytes().all(|b| b.is_ascii_digit())
}

/// Formats a path on a single line.
pub(crate) fn path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// The highest number of names that a message lists.
const LISTED: usize = 5;

/// Formats a list of names and shortens it: `a, b, c, d, e and 19,995 more`. Escapes control characters.
pub(crate) fn first(names: &[impl AsRef<str>]) -> String {
    let listed: Vec<_> = names.iter().take(LISTED).map(|name| shown(name.as_ref())).collect();
    let more = match names.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {} more", count(more as u64)),
    };
    listed.join(", ") + &more
}

/// Formats a duration in seconds as `42 s`, `12 min` or `3 h 5 min`.
pub(crate) fn time(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        _ if minutes < 100 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// Formats numbers with four decimals: `0.4914 0.4822 0.4465`.
pub(crate) fn decimals(values: &[f64]) -> String {
    let words: Vec<String> = values.iter().map(|v| format!("{v:.4}")).collect();
    words.join(" ")
}

/// Draws a bar of `#` characters for `count`. `most` has the longest bar, and any count above 0 has at least one
/// character.
pub(crate) fn bar(count: u64, most: u64) -> String {
    const LONGEST: u128 = 40;
    let length = (u128::from(count) * LONGEST).div_ceil(u128::from(most.max(1)));
    "#".repeat(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(48_273_612), "46.0 MiB");
        assert_eq!([time(42.4), time(700.0), time(11_100.0)], ["42 s", "12 min", "3 h 5 min"]);
        assert_eq!(plural(1, "shard"), "1 shard");
        assert_eq!(plural(16, "shard"), "16 shards");
        assert_eq!([bar(0, 9), bar(1, 1000), bar(5, 5)].map(|b| b.len()), [0, 1, 40]);
        assert_eq!(first(&["cat", "a\u{1b}[2J\n"]), "cat, a\\u001b[2J\\u000a");
        let many: Vec<String> = (0..20_000).map(|i| format!("class{i}")).collect();
        assert_eq!(first(&many), "class0, class1, class2, class3, class4 and 19,995 more");
        assert_eq!(decimals(&[0.49139968, 0.5]), "0.4914 0.5000");
    }
}
