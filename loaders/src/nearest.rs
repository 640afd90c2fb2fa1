//! Spelling help: the candidate nearest to a mistyped word.

/// The candidate that `word` most probably meant, or `None` when none is close.
///
/// Close means at most a third of the longer word's letters (but at least two) inserted, deleted, replaced or swapped with a
/// neighbour; letter case does not count. Of equals the first wins.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let close = candidates.iter().filter_map(|candidate| {
        let candidate_word = candidate.to_lowercase();
        let longer = word.chars().count().max(candidate_word.chars().count());
        let distance = strsim::osa_distance(&word, &candidate_word);
        // Two words that share no letter in place are never a slip of the finger.
        (distance <= (longer / 3).max(2) && distance < longer).then_some((distance, *candidate))
    });
    close.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// `; did you mean "x"?` for the nearest candidate, else the empty string: the tail of an error message.
pub fn did_you_mean(word: &str, candidates: &[&str]) -> String {
    nearest(word, candidates).map(|found| format!("; did you mean \"{found}\"?")).unwrap_or_default()
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
        assert_eq!(nearest("random_corp", &["flip", "random_crop"]), Some("random_crop"));
        assert_eq!(nearest("transformer", &models), None);
        assert_eq!(nearest("xy", &["ab"]), None);
        assert_eq!(did_you_mean("filp", &["flip"]), "; did you mean \"flip\"?");
        assert_eq!(did_you_mean("zzzzzz", &["flip"]), "");
    }
}
