//! Patterns that select parameters by their names, such as `*.bias`.
//!
//! These are not the patterns of the crate `glob`. There, `[` and `**` have a meaning and a pattern may be invalid, but
//! names from imported models may contain any character.

/// Returns true if a parameter name such as `layer1.0.bn1.bias` matches a pattern. `*` matches any characters including
/// dots, `?` matches exactly one character, and everything else matches itself.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            // Only the last star needs to be tried again, because an earlier one has already matched as little as
            // possible.
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(matches("*.bias", "layer1.0.bn1.bias"));
        assert!(!matches("*.bias", "layer1.0.bn1.weight"));
        assert!(matches("conv*", "conv1.weight"));
        assert!(!matches("conv*", "layer1.0.conv1.weight"));
        assert!(matches("*bn*", "layer1.0.bn1.weight"));
        assert!(matches("fc?.weight", "fc1.weight"));
        assert!(!matches("fc?.weight", "fc.weight"));
        assert!(matches("*a*ab", "aaab") && !matches("*a*ab", "aaaba"));
        assert!(matches("", "") && matches("*", "") && !matches("", "x"));
    }
}
