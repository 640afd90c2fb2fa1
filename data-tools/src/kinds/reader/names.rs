//! Class names of published data sets and from lists.

use std::collections::BTreeMap;
use std::path::Path;

use loaders::regular;

use crate::error::Error;
use crate::text;

pub(crate) const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

pub(crate) const FASHION: [&str; 10] =
    ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"];

pub(crate) const CIFAR10: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

#[rustfmt::skip]
pub(crate) const CIFAR100: [&str; 100] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur",
    "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
];

pub(crate) fn to_strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// The limit for the number of lines in a list of classes.
const MOST_CLASSES: usize = 1_000_000;

/// Reads the class names in the file `path`, one per line in label order. Blank lines are skipped.
pub(crate) fn read(path: &Path) -> Result<Vec<String>, Error> {
    let text = regular::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let text = text::without_mark(&text);
    if text.lines().nth(MOST_CLASSES).is_some() {
        return Err(Error::input(path, format!("more than {MOST_CLASSES} lines; expected one class name per line")));
    }
    let names: Vec<String> = text.lines().map(str::trim).filter(|l| !l.is_empty()).map(String::from).collect();
    if names.is_empty() {
        return Err(Error::input(path, "the list is empty; expected one class name per line"));
    }
    check(path, &names)?;
    Ok(names)
}

/// Reads the class names in `classes.txt` in the folder `src`, or next to the file `src`, if there is such a list.
pub(crate) fn beside(src: &Path) -> Result<Option<Vec<String>>, Error> {
    let folder = if src.is_dir() { src } else { src.parent().unwrap_or(Path::new("")) };
    let path = folder.join("classes.txt");
    path.is_file().then(|| read(&path)).transpose()
}

/// Returns an error if two names are equal or differ only in case, because some file systems and people do not
/// distinguish them.
pub(crate) fn check(path: &Path, names: &[String]) -> Result<(), Error> {
    let mut seen: BTreeMap<String, &String> = BTreeMap::new();
    for name in names {
        let what = match seen.insert(name.to_lowercase(), name) {
            None => continue,
            Some(other) if other == name => format!("the class `{name}` is listed twice"),
            Some(other) => {
                format!("the classes `{other}` and `{name}` differ only in upper and lower case; rename or merge them")
            }
        };
        return Err(Error::input(path, what));
    }
    Ok(())
}

// Handles names that a source assigns to its label numbers, in a file's metadata or in each record or line.
//
// If a class list contains these names, a number gets the class with its name, wherever the name is in the list. If no
// name is at another position in the list than its number, the list renames the classes: each number is an index into it.

/// Makes the names unique. If numbers share a name, such as ImageNet's two `crane` classes, the number is appended.
pub(crate) fn unique<'a>(names: impl Iterator<Item = (i64, &'a str)> + Clone) -> BTreeMap<i64, String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    names.clone().for_each(|(_, name)| *counts.entry(name).or_default() += 1);
    let name = |(number, name): (i64, &'a str)| {
        (number, if counts[name] > 1 { format!("{name} ({number})") } else { name.to_string() })
    };
    names.map(name).collect()
}

/// Returns the first number whose name is at a different position in `list`, or whose name is not in the list and that
/// is past its end. Returns `None` if there is no such number, so that the list renames the numbers.
pub(crate) fn first_moved(names: &BTreeMap<i64, String>, list: &[String]) -> Option<i64> {
    let positions: BTreeMap<&str, i64> = (0..).zip(list).map(|(at, name)| (name.as_str(), at)).collect();
    let is_moved = |number: i64, name: &str| match positions.get(name) {
        Some(at) => *at != number,
        None => !(0..list.len() as i64).contains(&number),
    };
    names.iter().find(|(number, name)| is_moved(**number, name)).map(|(number, _)| *number)
}

/// Returns a note that says which names a list replaces.
pub(crate) fn rename_note(names: &BTreeMap<i64, String>, list: &[String]) -> Option<String> {
    let pairs = names.iter().filter_map(|(number, name)| Some((name, list.get(usize::try_from(*number).ok()?)?)));
    let pairs: Vec<String> =
        pairs.filter(|(old, new)| old != new).map(|(old, new)| format!("{old} is now {new}")).collect();
    (!pairs.is_empty()).then(|| format!("classes renamed by the list: {}", text::first(&pairs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published order is alphabetical. This detects a mistake in the tables.
    #[test]
    fn cifar_names_are_sorted_and_distinct() {
        assert!(CIFAR10.windows(2).all(|w| w[0] < w[1]));
        assert!(CIFAR100.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn numbers_become_names_unless_a_list_renames_them() {
        let names = unique([(0, "a"), (1, "b"), (2, "c")].into_iter());
        let list = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        assert_eq!(first_moved(&names, &list("abc")), None);
        assert_eq!((first_moved(&names, &list("xyz")), first_moved(&names, &list("abz"))), (None, None));
        assert_eq!(
            (first_moved(&names, &list("cba")), first_moved(&names, &list("ac")), first_moved(&names, &list("ab"))),
            (Some(0), Some(2), Some(2))
        );
        assert!(rename_note(&names, &list("abz")).unwrap().ends_with(": c is now z"));
        assert_eq!(rename_note(&names, &list("abc")), None);
        let cranes = unique([(134, "crane"), (517, "crane"), (2, "dog")].into_iter());
        assert_eq!(cranes.into_values().collect::<Vec<_>>(), ["dog", "crane (134)", "crane (517)"]);
    }
}
