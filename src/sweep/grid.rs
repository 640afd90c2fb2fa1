//! The combinations of a grid's values, and the names of their folders.

use std::collections::BTreeSet;

use loaders::crc32c::crc32c;
use training::Error;

/// Longest part of a folder's name that a value gives.
const LONGEST: usize = 40;

/// Keys of a recipe, each with the values that are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid(Vec<(String, Vec<String>)>);

/// One combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Name of its folder, which other values of the grid do not change.
    pub name: String,
    /// Keys and values, in the order of the grid.
    pub values: Vec<(String, String)>,
}

impl Point {
    /// The values as `--set` takes them.
    pub fn sets(&self) -> Vec<String> {
        self.values.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }
}

impl Grid {
    /// Reads `KEY=V1,V2` words.
    ///
    /// # Errors
    /// For a word that is none, and for a key that comes twice.
    pub fn parse(words: &[String]) -> Result<Self, Error> {
        let mut axes: Vec<(String, Vec<String>)> = Vec::new();
        for word in words {
            let wrong = |why: &str| Error::Usage(format!("--grid {word}: {why}; expected KEY=V1,V2"));
            let (key, text) = word.split_once('=').ok_or_else(|| wrong("no values"))?;
            let (key, values) = (key.trim().to_string(), split(text));
            if key.is_empty() || values.iter().any(String::is_empty) {
                return Err(wrong("a key or a value is empty"));
            }
            if values.iter().collect::<BTreeSet<_>>().len() < values.len() {
                return Err(wrong("a value comes twice"));
            }
            if axes.iter().any(|(other, _)| *other == key) {
                return Err(wrong("the key has values already"));
            }
            axes.push((key, values));
        }
        Ok(Self(axes))
    }

    /// The keys, as short as they can be told apart.
    pub fn titles(&self) -> Vec<String> {
        let short = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
        let alike = |name: &str| self.0.iter().filter(|(key, _)| short(key) == name).count() > 1;
        self.0.iter().map(|(key, _)| if alike(&short(key)) { key.clone() } else { short(key) }).collect()
    }

    /// All combinations; the values of the last key change fastest.
    pub fn points(&self) -> Vec<Point> {
        let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for (key, values) in &self.0 {
            let longer = |point: &Vec<(String, String)>| {
                let with = |value: &String| [point.clone(), vec![(key.clone(), value.clone())]].concat();
                values.iter().map(with).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(longer).collect();
        }
        let titles = self.titles();
        let named = |values: Vec<(String, String)>| {
            let parts = titles.iter().zip(&values).map(|(title, (_, value))| format!("{title}={}", plain(value)));
            Point { name: parts.collect::<Vec<_>>().join(","), values }
        };
        all.into_iter().map(named).collect()
    }
}

/// The parts of a text at its commas, those within brackets and quotes aside.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut quoted) = (vec![String::new()], 0, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '(' | '{' if !quoted => depth += 1,
            ']' | ')' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(last) if c != ',' || depth > 0 || quoted => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.iter().map(|part| part.trim().to_string()).collect()
}

/// A value as a part of a file name; one that does not fit into it whole gets its checksum, which tells it from others that look alike.
fn plain(value: &str) -> String {
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '_' };
    let text: String = value.chars().map(harmless).take(LONGEST).collect();
    if text == value { text } else { format!("{}_{:08x}", text.trim_matches('_'), crc32c(value.as_bytes())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(words: &[&str]) -> Result<Grid, Error> {
        Grid::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn all_combinations_have_a_name() {
        let grid = grid(&["optimizer.kind=sgd,adamw", "schedule.base_lr=0.01, 0.1"]).unwrap();
        let names: Vec<String> = grid.points().into_iter().map(|point| point.name).collect();
        let expected =
            ["kind=sgd,base_lr=0.01", "kind=sgd,base_lr=0.1", "kind=adamw,base_lr=0.01", "kind=adamw,base_lr=0.1"];
        assert_eq!(names, expected);
        assert_eq!(grid.points()[3].sets(), ["optimizer.kind=adamw", "schedule.base_lr=0.1"]);
    }

    #[test]
    fn lists_stay_whole_and_names_harmless() {
        let grid =
            grid(&["augment.train=[\"flip\", \"normalize\"],[\"normalize\"]", "shuffle=\"full\",window(2)"]).unwrap();
        let points = grid.points();
        assert_eq!(points.len(), 4);
        assert_eq!(points[1].sets(), ["augment.train=[\"flip\", \"normalize\"]", "shuffle=window(2)"]);
        assert_eq!(points[1].name, "train=flip____normalize_1c962e06,shuffle=window_2_406049de");
        // two kinds are told apart, and so are values that look alike
        let alike = self::grid(&["optimizer.kind=sgd", "schedule.kind=step,cosine"]).unwrap();
        assert_eq!(alike.points()[0].name, "optimizer.kind=sgd,schedule.kind=step");
        let alike = self::grid(&["data=a/b,a_b"]).unwrap().points();
        assert_eq!([&alike[0].name, &alike[1].name], ["data=a_b_fb0b40a3", "data=a_b"]);
        // however many values there are, and in whichever order
        let others = self::grid(&["data=a_b,c,a/b"]).unwrap().points();
        assert_eq!([&others[2].name, &others[0].name], [&alike[0].name, &alike[1].name]);
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [&["seed"][..], &["=1,2"], &["seed=1,,2"], &["seed=1,1"], &["seed=1", "seed=2"]] {
            assert!(grid(words).unwrap_err().to_string().contains("KEY=V1,V2"), "{words:?}");
        }
    }
}
