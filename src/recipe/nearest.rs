//! Spelling help: the candidate nearest to a mistyped word, and the glob patterns that select parameter names.
//! Knows nothing of recipes.

/// The candidate that `word` most probably meant, or `None` when none is close.
///
/// Close means at most a third of the longer word's letters (but at least two) inserted, deleted, replaced
/// or swapped with a neighbour; letter case does not count. Of equals the first wins.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().collect();
    candidates
        .iter()
        .filter_map(|candidate| {
            let letters: Vec<char> = candidate.to_lowercase().chars().collect();
            let longer = word.len().max(letters.len());
            let distance = distance(&word, &letters);
            // Two words that share no letter in place are never a slip of the finger.
            (distance <= (longer / 3).max(2) && distance < longer).then_some((distance, *candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean "x"?` for the nearest candidate, else the empty string: the tail of an error message.
pub fn did_you_mean(word: &str, candidates: &[&str]) -> String {
    nearest(word, candidates).map(|found| format!("; did you mean \"{found}\"?")).unwrap_or_default()
}

/// Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours each cost one.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Whether a parameter name such as `layer1.0.bn1.bias` fits a pattern: `*` stands for any run of characters
/// (dots too), `?` for exactly one, everything else for itself.
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
            // Only the last star needs to be tried again: an earlier one has already matched as little as it can.
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
    fn nearest_finds_slips_and_leaves_strangers() {
        let models = ["lenet", "lenet-caffe", "cifarnet", "resnet20", "resnet32"];
        assert_eq!(nearest("resnet2", &models), Some("resnet20"));
        assert_eq!(nearest("ResNet32", &models), Some("resnet32"));
        assert_eq!(nearest("lnet", &models), Some("lenet"));
        assert_eq!(nearest("lenetcaffe", &models), Some("lenet-caffe"));
        assert_eq!(nearest("transformer", &models), None);
        assert_eq!(nearest("xy", &["ab"]), None);
        assert_eq!(did_you_mean("filp", &["flip"]), "; did you mean \"flip\"?");
        assert_eq!(did_you_mean("zzzzzz", &["flip"]), "");
    }

    #[test]
    fn distances_by_hand() {
        let d = |a: &str, b: &str| {
            let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
            distance(&a, &b)
        };
        assert_eq!(d("", "abc"), 3);
        assert_eq!(d("kitten", "sitting"), 3);
        assert_eq!(d("batch", "btach"), 1);
    }

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
