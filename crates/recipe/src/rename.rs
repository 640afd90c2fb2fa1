//! The renaming rules in `init.match`, which convert tensor names in a file to names in the network.

use base::text::plural;
use regex::{Regex, RegexBuilder};

/// Maximum size of a compiled rule in bytes.
const LARGEST: usize = 1 << 20;

/// A rule with a regular expression and a replacement.
#[derive(Clone, Debug)]
pub struct Rename {
    /// The regular expression as the user wrote it.
    pub text: String,
    whole: Regex,
    replacement: String,
}

impl Rename {
    /// Creates a rule. The regular expression must match a whole name. In the replacement, `$1` and `${1}` are replaced
    /// by the text of a group.
    ///
    /// # Errors
    ///
    /// Returns the problem with the expression, or a group in the replacement that the expression does not have.
    pub fn new([pattern, replacement]: &[String; 2]) -> Result<Self, String> {
        let whole = RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(LARGEST).build();
        // The regex library's message shows the expression in several lines. Only the last line of the message has the
        // reason.
        let whole =
            whole.map_err(|e| format!("{pattern:?} is not a regular expression: {}", last_line(&e.to_string())))?;
        if let Some(group) = groups(replacement).into_iter().find(|group| !has(&whole, group)) {
            return Err(format!(
                "{replacement:?} refers to the group {group:?}, but {pattern:?} has {}; if a letter or _ follows the number, \
                 write ${{1}}",
                plural(whole.captures_len() - 1, "group")
            ));
        }
        Ok(Self { text: pattern.clone(), whole, replacement: replacement.clone() })
    }

    /// Returns the new name, or `None` if the rule does not match.
    pub fn apply(&self, name: &str) -> Option<String> {
        let captures = self.whole.captures(name)?;
        let mut renamed = String::new();
        captures.expand(&self.replacement, &mut renamed);
        Some(renamed)
    }
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or(text).trim_start_matches("error: ").trim()
}

fn has(whole: &Regex, group: &str) -> bool {
    match group.parse::<usize>() {
        Ok(number) => number < whole.captures_len(),
        Err(_) => whole.capture_names().flatten().any(|name| name == group),
    }
}

/// Returns the groups that a replacement refers to. As in the regex library, a reference is `$` and the longest run of
/// letters, digits and `_`, or `${}` with any content.
fn groups(replacement: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), replacement);
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        if let Some(next) = rest.strip_prefix('$') {
            rest = next;
        } else if let Some((name, next)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            found.push(name.to_string());
            rest = next;
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            found.extend((end > 0).then(|| rest[..end].to_string()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    fn rule(pattern: &str, replacement: &str) -> Result<Rename, String> {
        Rename::new(&[pattern.to_string(), replacement.to_string()])
    }

    #[test]
    fn whole_names_are_renamed_by_groups() {
        let one = rule("backbone.(.*)", "$1").unwrap();
        assert_eq!(one.apply("backbone.layer1.0.conv1.weight").as_deref(), Some("layer1.0.conv1.weight"));
        assert_eq!(one.apply("a.backbone.fc.bias"), None);
        let two = rule(r"_blocks\.(\d+)\.(?<part>bn|conv)_(.*)", "blocks.${1}_.$part.$3").unwrap();
        assert_eq!(two.apply("_blocks.12.bn_weight").as_deref(), Some("blocks.12_.bn.weight"));
        // A top-level alternative must match the whole name too.
        assert_eq!(rule("a|b", "c").unwrap().apply("ab"), None);
    }

    #[test]
    fn invalid_rules_are_refused() {
        mentions(rule("backbone.(.*", "$1").unwrap_err(), &["\"backbone.(.*\"", "unclosed group"]);
        mentions(rule("x(.*)", "$1_y").unwrap_err(), &["\"$1_y\"", "\"1_y\"", "${1}"]);
        mentions(rule("x(.*)", "$2").unwrap_err(), &["\"$2\"", "\"2\"", "\"x(.*)\"", "1 group;"]);
        assert!(rule("x", "$$").is_ok() && rule("x", "a$").is_ok());
        mentions(rule("(a{1000}){1000}", "").unwrap_err(), &["\"(a{1000}){1000}\"", "size limit"]);
    }
}
