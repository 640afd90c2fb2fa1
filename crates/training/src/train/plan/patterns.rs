//! Patterns of a recipe that name parameters of the network: one that names none is a slip, not a wish. Lists that may serve several
//! networks, such as `optimizer.no_decay`, get a note; others are refused.

use std::collections::BTreeSet;

use engine::graph::BuildError;
use net::NetSpec;
use recipe::{matches, nearest};

use crate::error::Error;

/// A parameter that patterns are matched against.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// Name, for example `layer1.0.bn1.bias`.
    pub name: &'a str,
    /// True if the parameter is part of a normalization layer.
    pub norm: bool,
}

impl Parameter<'_> {
    /// Returns true if a keyword of pattern lists includes this parameter. The keyword "norm" includes all parameters of normalization
    /// layers, and "bias" includes all biases.
    fn is_of_kind(&self, word: &str) -> bool {
        match word {
            "norm" => self.norm,
            "bias" => self.name.ends_with(".bias"),
            _ => false,
        }
    }
}

/// Replaces the keywords "norm" and "bias" in a list with the names of the parameters.
pub fn expanded(list: &[String], parameters: &[Parameter<'_>]) -> Vec<String> {
    let names = |word: &String| {
        let of_kind: Vec<String> =
            parameters.iter().filter(|one| one.is_of_kind(word)).map(|one| one.name.to_string()).collect();
        if of_kind.is_empty() { vec![word.clone()] } else { of_kind }
    };
    list.iter().flat_map(names).collect()
}

/// Formats how many parameters each entry of a list selects, for the log. Returns `None` for an empty list.
pub fn counted(key: &str, list: &[String], parameters: &[Parameter<'_>]) -> Option<String> {
    let named = |one: &&Parameter<'_>, word: &str| one.is_of_kind(word) || matches(word, one.name);
    let count = |word: &String| {
        let count = parameters.iter().filter(|one| named(one, word)).count();
        format!("\"{word}\" {count}")
    };
    let all: Vec<String> = list.iter().map(count).collect();
    (!all.is_empty()).then(|| format!("{key}: of {} tensors {}", parameters.len(), all.join(", ")))
}

/// Names that a message lists at most.
const MOST: usize = 12;

/// Refuses a pattern of the list `key` that names none of `names`.
pub fn check(key: &str, patterns: &[String], names: &[&str], of: &str) -> Result<(), Error> {
    let odd = patterns.iter().find(|pattern| !names.iter().any(|name| matches(pattern, name)));
    odd.map_or(Ok(()), |pattern| {
        Err(Error::Usage(format!("{key}: \"{pattern}\" names nothing in {of}; {}", near(pattern, names))))
    })
}

/// Notes on the patterns of the list `key` that name none of `names`.
pub fn notes(key: &str, patterns: &[String], names: &[&str], of: &str) -> Vec<String> {
    let each = patterns.iter().filter_map(|pattern| check(key, std::slice::from_ref(pattern), names, of).err());
    each.map(|error| format!("warning: {error}")).collect()
}

/// The names nearest to a pattern or name, in words.
pub fn near(pattern: &str, names: &[&str]) -> String {
    let modules: BTreeSet<&str> = names.iter().flat_map(|name| prefixes(name)).collect();
    let words: Vec<&str> = modules.iter().copied().collect();
    let bare = pattern.trim_matches('*').trim_matches('.');
    match nearest(bare, &words) {
        Some(found) if names.contains(&found) => format!("did you mean \"{found}\"?"),
        Some(found) => format!("did you mean \"{found}.*\"?"),
        None => {
            let first: BTreeSet<&str> = names.iter().filter_map(|name| name.split('.').next()).collect();
            let more = if first.len() > MOST { ", ..." } else { "" };
            let listed: Vec<&str> = first.into_iter().take(MOST).collect();
            format!("the names begin with {}{more}", listed.join(", "))
        }
    }
}

/// A name, and the modules that it is in.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(at, _)| &name[..at]).chain([name])
}

/// The parameters that `freeze.patterns` names.
///
/// # Errors
/// For a pattern that names none, and for patterns that leave none to train.
pub fn frozen(net: &NetSpec, patterns: &[String]) -> Result<BTreeSet<String>, Error> {
    let parameters = net.tensors().map_err(BuildError::from)?.parameters;
    let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    check("freeze.patterns", patterns, &names, &format!("network {}", net.name))?;
    let frozen: BTreeSet<String> =
        names.iter().filter(|name| patterns.iter().any(|p| matches(p, name))).map(ToString::to_string).collect();
    if frozen.len() < names.len() {
        return Ok(frozen);
    }
    let last = names.last().and_then(|name| name.rsplit_once('.')).map_or("", |(module, _)| module);
    Err(Error::Usage(format!(
        "freeze.patterns = {patterns:?} names all {} parameters of network {}, so nothing would be trained; leave some out, such as \
         \"{last}.*\"",
        names.len(),
        net.name
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] =
        ["conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer2.0.conv1.weight", "fc.weight"];

    fn refused(pattern: &str) -> String {
        check("freeze.patterns", &[pattern.to_string()], &NAMES, "network x").unwrap_err().to_string()
    }

    #[test]
    fn kinds_stand_for_the_parameters_that_are_of_them() {
        let parameters = NAMES.map(|name| Parameter { name, norm: name.starts_with("bn") });
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        assert_eq!(expanded(&list(&["norm", "fc.*"]), &parameters), ["bn1.weight", "bn1.bias", "fc.*"]);
        assert_eq!(expanded(&list(&["bias"]), &parameters), ["bn1.bias"]);
        assert_eq!(expanded(&list(&["bias"]), &parameters[..1]), ["bias"]);
        let told = counted("optimizer.no_decay", &list(&["norm", "bias", "*conv1*"]), &parameters);
        assert_eq!(told.unwrap(), "optimizer.no_decay: of 6 tensors \"norm\" 2, \"bias\" 1, \"*conv1*\" 3");
        assert_eq!(counted("optimizer.no_decay", &[], &parameters), None);
    }

    #[test]
    fn a_pattern_that_names_nothing_is_told_the_nearest() {
        assert!(refused("layr1.*").ends_with("\"layr1.*\" names nothing in network x; did you mean \"layer1.*\"?"));
        assert!(refused("layer1").contains("did you mean \"layer1.*\"?"));
        assert!(refused("bn1.wieght").contains("did you mean \"bn1.weight\"?"));
        assert!(refused("transformer.*").ends_with("the names begin with bn1, conv1, fc, layer1, layer2"));
        assert!(check("x", &["*.weight".into(), "bn?.bias".into()], &NAMES, "y").is_ok());
        let list: Vec<String> = ["*.weight", "*.bais", "gn.*"].map(Into::into).to_vec();
        let told = notes("optimizer.no_decay", &list, &NAMES, "network x");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("warning: optimizer.no_decay: \"*.bais\" names nothing in network x; "),
            "{told:?}"
        );
    }
}
