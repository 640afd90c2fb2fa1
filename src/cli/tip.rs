//! What errors of the command line suggest: for an option that is a key of the recipe, `--epochs 3`, that is `--set epochs=3`; and no
//! command that the help hides.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;
use crate::recipe::hint;

/// What to type instead, if the error is an option of `train` that no command has and that a recipe has as a key.
pub fn for_error(error: &clap::Error, line: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument || line.get(1).map(String::as_str) != Some("train") {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let key = hint::key_of_option(option)?;
    let value = line.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(option.as_str())? {
        "" => line.get(at + 1).filter(|next| !next.starts_with("--")).map(String::as_str),
        rest => rest.strip_prefix('='),
    });
    Some(format!("  tip: a key of the recipe is changed with --set {key}={}", value.unwrap_or("VALUE")))
}

/// The same error without commands among its suggestions that are not in the help.
pub fn without_hidden(mut error: clap::Error) -> clap::Error {
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
        let set = |text: &str| Some(format!("  tip: a key of the recipe is changed with --set {text}"));
        assert_eq!(tip("trireme train a.toml --epochs 3"), set("epochs=3"));
        assert_eq!(tip("trireme train a.toml --lr=0.1 --out x"), set("schedule.base_lr=0.1"));
        assert_eq!(tip("trireme train a.toml --batch-size --out x"), set("batch=VALUE"));
        assert_eq!(tip("trireme train a.toml --banana 3"), None);
        assert_eq!(tip("trireme eval m.h5 --data d --epochs 3"), None);
    }
}
