//! Assigns splits to a source's files, folders, arrays, shards or column values. All source kinds use these rules.
//!
//! A name is split into words at separators, digits and case changes, so `val2017`, `ValSet` and `flowers_train_00000-of-00005` are
//! understood. `eval` and `holdout` mean `validation`. They mean `test` if another part is `validation` and no part is `test`. If some
//! names contain a known word, a name without a known word is an error. Otherwise it would silently become training data.

use std::collections::BTreeSet;
use std::path::Path;

use loaders::Permutation;

use crate::error::Error;
use crate::text;

pub(crate) const TRAIN: &str = "train";
const VALIDATION: &str = "validation";
const TEST: &str = "test";
/// The target in `--split-map NAME=none`, which skips the part.
const NONE: &str = "none";

/// The meaning of a split word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Split(&'static str),
    /// `validation`, or `test` if another part is `validation`.
    Eval,
}

/// How to treat parts if no name contains a split word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownNames {
    /// Assign all parts to `train`.
    Train,
    /// Make each part a split with the same name.
    Own,
}

/// Returns the split for a lower-case word. `valset` and `traindata` count as `val` and `train`.
fn split_of_word(word: &str) -> Option<Word> {
    match word {
        "train" | "training" | "trn" => Some(Word::Split(TRAIN)),
        "val" | "valid" | "validation" | "validate" | "dev" => Some(Word::Split(VALIDATION)),
        "test" | "testing" | "tst" => Some(Word::Split(TEST)),
        "eval" | "evaluation" | "holdout" | "heldout" => Some(Word::Eval),
        _ => {
            let short = ["set", "split", "data"].iter().find_map(|end| word.strip_suffix(end));
            short.filter(|short| !short.is_empty()).and_then(split_of_word)
        }
    }
}

/// Splits a name into lower-case words: `ValSet2017_b` becomes `val`, `set`, `2017` and `b`.
pub(crate) fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let (mut words, mut word) = (Vec::new(), String::new());
    for (at, &c) in chars.iter().enumerate() {
        let (before, after) = (at.checked_sub(1).map(|at| chars[at]), chars.get(at + 1));
        let begins = before.is_some_and(|before| {
            let camel = c.is_uppercase() && (before.is_lowercase() || after.is_some_and(|after| after.is_lowercase()));
            camel && before.is_alphabetic() || c.is_numeric() != before.is_numeric()
        });
        if begins || !c.is_alphanumeric() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the split in a name that may contain other words. The last split word counts, as in `my-test-train-000012`.
fn split_of_name(name: &str) -> Option<Word> {
    words(name).iter().rev().find_map(|word| split_of_word(word)).or_else(|| split_of_joined_words(name))
}

/// Recognizes `hold-out` and `held_out`, because their separate words have no meaning.
fn split_of_joined_words(name: &str) -> Option<Word> {
    let joined = words(name).concat();
    (joined.contains("holdout") || joined.contains("heldout")).then_some(Word::Eval)
}

/// Returns the split if a name has only a split word, numbers and fillers such as `set`. Accepts `val2017` and `TrainSet`, but not
/// `train_small`.
fn split_of_whole_name(name: &str) -> Option<Word> {
    let is_filler = |word: &str| {
        ["set", "split", "data", "images", "imgs"].contains(&word) || word.bytes().all(|b| b.is_ascii_digit())
    };
    let words = words(name);
    let mut found = words.iter().filter(|word| !is_filler(word));
    match (found.next(), found.next()) {
        (Some(word), None) => split_of_word(word),
        (Some(_), Some(_)) if ["holdout", "heldout"].contains(&words.concat().as_str()) => Some(Word::Eval),
        _ => None,
    }
}

/// Returns true if a folder name or column value is a split.
pub(crate) fn is_split(name: &str) -> bool {
    split_of_whole_name(name).is_some()
}

/// Returns true if a folder name means `train`.
pub(crate) fn is_train(name: &str) -> bool {
    split_of_whole_name(name) == Some(Word::Split(TRAIN))
}

/// Returns true if a name contains a split word.
pub(crate) fn mentions_split(name: &str) -> bool {
    split_of_name(name).is_some()
}

/// Strips the ending and the numbers from a numbered file's name: `eval-00003-of-00010` becomes `eval`.
pub(crate) fn series(stem: &str) -> &str {
    let mut name = stem;
    loop {
        let shorter = name.trim_end_matches(|c: char| c.is_ascii_digit() || !c.is_alphanumeric());
        let shorter = shorter.strip_suffix("-of").or_else(|| shorter.strip_suffix("_of")).unwrap_or(shorter);
        if shorter.len() == name.len() || shorter.is_empty() {
            return if shorter.is_empty() { stem } else { name };
        }
        name = shorter;
    }
}

/// Returns the sort rank for splits, `train` first.
pub(crate) fn rank(split: &str) -> u8 {
    match split {
        TRAIN => 0,
        VALIDATION => 1,
        TEST => 2,
        _ => 3,
    }
}

/// Where a name may contain a split word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameMatching {
    /// A split word may occur anywhere in the name.
    Loose,
    /// The whole name must be a split, as for folders and column values.
    Whole,
}

/// Assigns splits to the parts in a source.
pub(crate) struct SplitAssigner<'a> {
    /// Path of the source, for messages.
    pub src: &'a Path,
    /// The `--split-map` entries: names and their splits.
    pub map: &'a [(String, String)],
    pub names: NameMatching,
    pub unknown: UnknownNames,
}

impl SplitAssigner<'_> {
    /// Returns the split for each part in `names`, or `None` for skipped parts. Returns an error if only some names
    /// contain a split word, if `eval` occurs together with both other splits, or if a mapped name does not exist.
    pub(crate) fn splits(&self, names: &[&str]) -> Result<Vec<Option<String>>, Error> {
        self.check_map(names)?;
        let mapped: Vec<Option<&str>> = names.iter().map(|name| self.mapped(name)).collect();
        let read = |name: &str| {
            if self.names == NameMatching::Loose { split_of_name(name) } else { split_of_whole_name(name) }
        };
        let words: Vec<Option<Word>> = names.iter().map(|name| read(name)).collect();
        let is_there = |split: &str| {
            mapped.iter().zip(&words).any(|(mapped, word)| match mapped {
                Some(mapped) => *mapped == split,
                None => matches!(word, Some(Word::Split(own)) if *own == split),
            })
        };
        let eval = match (is_there(VALIDATION), is_there(TEST)) {
            (false, _) => Some(VALIDATION),
            (true, false) => Some(TEST),
            (true, true) => None,
        };
        let each = || names.iter().zip(&mapped).zip(&words);
        if eval.is_none()
            && let Some(((name, _), _)) = each().find(|((_, m), w)| m.is_none() && **w == Some(Word::Eval))
        {
            return Err(self.refuse(names, &[name], "could be validation or test, but both already exist"));
        }
        let unknown = distinct(each().filter(|((_, m), w)| m.is_none() && w.is_none()).map(|((name, _), _)| *name));
        let known = each().any(|((_, m), w)| m.is_some() || w.is_some());
        if known && !unknown.is_empty() {
            let what = match unknown.len() {
                1 => "does not say which split it is",
                _ => "do not say which splits they are",
            };
            return Err(self.refuse(names, &unknown, what));
        }
        let split = |((name, mapped), word): ((&&str, &Option<&str>), &Option<Word>)| match (mapped, word) {
            (Some(NONE), _) => None,
            (Some(split), _) => Some(split.to_string()),
            (None, Some(Word::Split(split))) => Some(split.to_string()),
            (None, Some(Word::Eval)) => eval.map(String::from),
            (None, None) if self.unknown == UnknownNames::Own => Some(name.to_string()),
            (None, None) => Some(TRAIN.to_string()),
        };
        Ok(each().map(split).collect())
    }

    /// Looks up a part in the map by its full name or by a word in it.
    fn mapped(&self, name: &str) -> Option<&str> {
        let whole = self.map.iter().find(|(from, _)| from.eq_ignore_ascii_case(name));
        let by_word = || {
            let words = words(name);
            self.map.iter().find(|(from, _)| self.names == NameMatching::Loose && words.contains(&from.to_lowercase()))
        };
        whole.or_else(by_word).map(|(_, to)| to.as_str())
    }

    fn check_map(&self, names: &[&str]) -> Result<(), Error> {
        let words: BTreeSet<String> = names.iter().flat_map(|name| words(name)).collect();
        let is_there = |from: &str| {
            names.iter().any(|name| name.eq_ignore_ascii_case(from))
                || self.names == NameMatching::Loose && words.contains(&from.to_lowercase())
        };
        match self.map.iter().find(|(from, _)| !is_there(from)) {
            None => Ok(()),
            Some((from, to)) => Err(Error::Usage(format!(
                "--split-map {from}={to}: {} has no part named `{from}`, only {}",
                self.src.display(),
                text::first(&distinct(names.iter().copied()))
            ))),
        }
    }

    /// Returns the error for parts with an unknown split. It lists all parts found.
    fn refuse(&self, names: &[&str], unknown: &[&str], what: &str) -> Error {
        let quoted: Vec<String> = unknown.iter().map(|name| format!("`{name}`")).collect();
        let what = format!(
            "{} {what}. Found: {}. Choose {} with --split-map {}=validation (or =train, =test, or =none to leave it out)",
            text::first(&quoted),
            text::first(&distinct(names.iter().copied())),
            if unknown.len() == 1 { "its split" } else { "a split for each" },
            base::text::printable(unknown[0])
        );
        Error::input(self.src, what)
    }
}

/// Returns the names in alphabetical order, each once.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.collect::<BTreeSet<&str>>().into_iter().collect()
}

/// Parses `NAME=SPLIT` from `--split-map` and replaces a split word with the split's name.
///
/// # Errors
/// Returns an error if the format is wrong or the split is not valid in a file name.
pub fn split_map(text: &str) -> Result<(String, String), String> {
    let (name, split) = text.split_once('=').ok_or("expected NAME=SPLIT, such as holdout=validation")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.trim().is_empty() || split.is_empty() || !split.chars().all(is_name) {
        return Err(
            "expected NAME=SPLIT, where SPLIT is train, validation, test, none or any name of letters and digits"
                .into(),
        );
    }
    let split = match split_of_word(&split.to_lowercase()) {
        Some(Word::Split(split)) => split.to_string(),
        _ if split.eq_ignore_ascii_case(NONE) => NONE.to_string(),
        _ => split.to_string(),
    };
    Ok((name.trim().to_string(), split))
}

/// Draws `wanted(n)` samples at random from each class, where n is the number of samples of the class. Returns true for
/// each drawn sample. The draw depends only on `seed` and the number of samples of each class.
pub(crate) fn draw(labels: &[u32], classes: usize, wanted: impl Fn(u64) -> u64, seed: u64) -> Vec<bool> {
    let mut counts = vec![0u64; classes];
    labels.iter().for_each(|&label| counts[label as usize] += 1);
    // Epoch 0 of this seed shuffles the samples over the shards, so class c uses epoch c + 1.
    let drawn = |(class, &count): (usize, &u64)| -> BTreeSet<u64> {
        let draw = Permutation::new(seed, 1 + class as u32, count.max(1));
        (0..wanted(count).min(count)).map(|i| draw.get(i)).collect()
    };
    let mut drawn: Vec<BTreeSet<u64>> = counts.iter().enumerate().map(drawn).collect();
    let mut next = vec![0u64; classes];
    let goes = |&label: &u32| {
        let class = label as usize;
        next[class] += 1;
        drawn[class].remove(&(next[class] - 1))
    };
    labels.iter().map(goes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(names: &[&str], map: &[(&str, &str)], unknown: UnknownNames) -> Result<String, String> {
        let map: Vec<(String, String)> = map.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        let assign = SplitAssigner { src: Path::new("src"), map: &map, names: NameMatching::Loose, unknown };
        let splits = assign.splits(names).map_err(|e| e.to_string())?;
        Ok(splits.into_iter().map(|split| split.unwrap_or("-".into())).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn words_of_splits() {
        for (name, split) in [
            ("imagenet-val-000012", "validation"),
            ("train_3", "train"),
            ("val2017", "validation"),
            ("ValSet", "validation"),
            ("TESTSET", "test"),
            ("trainset", "train"),
            ("XMLTest", "test"),
            ("flowers_train_00000-of-00005", "train"),
            ("my.Validation.2", "validation"),
            ("TRN", "train"),
            ("dev", "validation"),
            ("eval-000", "validation"),
            ("hold-out", "validation"),
            ("cat-trainer-1", "train"),
            ("shard-000001", "train"),
        ] {
            assert_eq!(assigned(&[name], &[], UnknownNames::Train).as_deref(), Ok(split), "{name}");
        }
        assert_eq!(assigned(&["shard"], &[], UnknownNames::Own).as_deref(), Ok("shard"));
        assert!(is_split("val2017") && is_split("TrainSet") && is_split("eval") && !is_split("train_small"));
        assert!(is_train("Training") && !is_train("trainer"));
        for (stem, name) in [("eval-00003-of-00010", "eval"), ("holdout", "holdout"), ("000", "000"), ("a_1_of_2", "a")]
        {
            assert_eq!(series(stem), name);
        }
    }

    #[test]
    fn eval_is_what_is_missing() {
        let of = |names: &[&str]| assigned(names, &[], UnknownNames::Train);
        assert_eq!(of(&["train", "eval"]).as_deref(), Ok("train validation"));
        assert_eq!(of(&["train", "dev", "eval"]).as_deref(), Ok("train validation test"));
        assert_eq!(of(&["train", "test", "holdout"]).as_deref(), Ok("train test validation"));
        let message = of(&["train", "val", "test", "eval"]).unwrap_err();
        assert!(message.starts_with("src: `eval` ") && message.contains("--split-map eval="), "{message}");
    }

    #[test]
    fn unknown_parts_beside_known_ones_are_refused_or_mapped() {
        let names = ["train-000", "extra_a", "extra_b"];
        let message = assigned(&names, &[], UnknownNames::Train).unwrap_err();
        for part in ["src: `extra_a`, `extra_b` ", "extra_a, extra_b, train-000", "--split-map extra_a=validation"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(assigned(&names, &[("extra", "test")], UnknownNames::Train).as_deref(), Ok("train test test"));
        let each = [("extra_a", "none"), ("EXTRA_B", "more")];
        assert_eq!(assigned(&names, &each, UnknownNames::Own).as_deref(), Ok("train - more"));
        let message = assigned(&names, &[("extar", "test")], UnknownNames::Train).unwrap_err();
        assert!(message.contains("--split-map extar=test: src ") && message.contains("extra_a"), "{message}");
        assert_eq!(split_map("holdout=val"), Ok(("holdout".into(), "validation".into())));
        assert_eq!(split_map("extra=None"), Ok(("extra".into(), "none".into())));
        assert!(split_map("holdout").is_err() && split_map("a=b/c").is_err());
    }
}
