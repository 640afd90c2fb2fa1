//! Suggestions for command-line errors. If an option is a key of the recipe, as `--epochs 3`, the tip is `--set epochs=3`. Options and
//! values of other programs get the equivalent in trireme. Commands that the help hides are never suggested.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use recipe::hint;
use recipe::hint::Equivalent;

use super::Cli;

/// Values that other programs use: the option, the values, and a tip with the equivalent in trireme.
const VALUES: [(&str, &[&str], &str); 5] = [
    (
        "--device",
        &["gpu", "nvidia", "mps", "cuda:0"],
        "for NVIDIA GPUs use `--device cuda`, with one GPU per rank; `auto` uses GPUs if there are any",
    ),
    (
        "<KIND>",
        &["imagefolder", "image_folder", "folders", "directory", "dir", "imagefolderdataset"],
        "a folder with one subfolder of images per class is `folder`",
    ),
    ("<KIND>", &["wds", "tar", "tars"], "tar archives of images with labels are `webdataset`"),
    ("<KIND>", &["huggingface", "hf", "arrow", "datasets"], "Hugging Face data sets are `parquet`"),
    (
        "<KIND>",
        &["tfds", "tfrecords", "tf"],
        "TFRecord files are `tfrecord`; after `trireme data index`, they can also be read without conversion",
    ),
];

/// Returns what to type instead, or `None`. There is a tip for unknown options of `train` that a recipe or another program has, and for
/// values that have another name in trireme.
pub fn for_error(error: &clap::Error, line: &[String]) -> Option<String> {
    if let Some(text) = of_value(error) {
        return Some(format!("  tip: {text}"));
    }
    if error.kind() != ErrorKind::UnknownArgument || line.get(1).map(String::as_str) != Some("train") {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let key = match hint::of_option(option)? {
        Equivalent::Key(key) => key,
        Equivalent::Sentence(text) => return Some(format!("  tip: {text}")),
    };
    let value = line.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(option.as_str())? {
        "" => line.get(at + 1).filter(|next| !next.starts_with("--")).map(String::as_str),
        rest => rest.strip_prefix('='),
    });
    Some(format!("  tip: this is a key of the recipe; use --set {key}={}", value.unwrap_or("VALUE")))
}

/// Returns the tip for a value that clap rejected, if another program uses this value.
fn of_value(error: &clap::Error) -> Option<&'static str> {
    if error.kind() != ErrorKind::InvalidValue {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (argument, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?.to_lowercase());
    let is_meant =
        |(of, words, _): &&(&str, &[&str], &str)| argument.starts_with(of) && words.contains(&value.as_str());
    VALUES.iter().find(is_meant).map(|(.., text)| *text)
}

/// Removes misleading suggestions from the error. These are hidden commands and, if [`for_error`] has a tip, similarly spelled words.
pub fn without_misleading(error: clap::Error, line: &[String]) -> clap::Error {
    let mut error = without_hidden(error);
    if for_error(&error, line).is_some() {
        for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::Suggested] {
            error.remove(kind);
        }
    }
    error
}

/// Removes hidden commands from the suggestions of the error.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let program = Cli::command();
    let shown = |name: &String| program.find_subcommand(name).is_none_or(|command| !command.is_hide_set());
    let kind = ContextKind::SuggestedSubcommand;
    let left: Vec<String> = match error.remove(kind) {
        Some(ContextValue::Strings(names)) => names.into_iter().filter(shown).collect(),
        Some(ContextValue::String(name)) => Some(name).into_iter().filter(shown).collect(),
        _ => Vec::new(),
    };
    if !left.is_empty() {
        error.insert(kind, ContextValue::Strings(left));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use support::mentions;

    #[test]
    fn commands_that_the_help_hides_are_not_suggested() {
        let said = |word: &str| without_hidden(Cli::try_parse_from(["trireme", word]).unwrap_err()).to_string();
        assert!(!said("rewrite").contains("rewrite-model"), "{}", said("rewrite"));
        assert!(said("trian").contains("'train'"), "{}", said("trian"));
    }

    #[test]
    fn options_that_are_keys() {
        let tip = |line: &str| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            for_error(&Cli::try_parse_from(&words).unwrap_err(), &words)
        };
        for (options, set) in [
            ("--epochs 3", "--set epochs=3"),
            ("--lr=0.1 --out x", "--set schedule.base_lr=0.1"),
            ("--batch-size --out x", "--set batch=VALUE"),
            ("--workers 4", "--set loader.threads=4"),
        ] {
            let tip = tip(&format!("trireme train a.toml {options}")).unwrap_or_else(|| panic!("no tip for {options}"));
            assert!(tip.starts_with("  tip: ") && tip.ends_with(&format!(" {set}")), "{options}: {tip}");
        }
        assert_eq!(tip("trireme train a.toml --banana 3"), None);
        assert_eq!(tip("trireme eval m.h5 --data d --epochs 3"), None);
        mentions(tip("trireme train a.toml --gpus 4").unwrap(), &["mpirun -n N"]);
    }

    /// If there is a tip, clap's similarly spelled suggestion is removed.
    #[test]
    fn values_of_other_programs() {
        let said = |line: &str| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            let error = without_misleading(Cli::try_parse_from(&words).unwrap_err(), &words);
            (error.to_string(), for_error(&error, &words).unwrap_or_default())
        };
        let (error, tip) = said("trireme train a.toml --device gpu");
        assert!(tip.contains("--device cuda") && !error.contains("tip:"), "{error}{tip}");
        let (error, tip) = said("trireme data convert imagefolder a b");
        assert!(tip.ends_with("is `folder`") && !error.contains("tip:"), "{error}{tip}");
        let (error, tip) = said("trireme train a.toml --gpus 4");
        assert!(!tip.is_empty() && !error.contains("-- --gpus"), "{error}{tip}");
        let (error, tip) = said("trireme train a.toml --device gpuu");
        assert!(tip.is_empty() && error.contains("possible values"), "{error}");
    }
}
