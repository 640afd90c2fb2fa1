//! Stores the fastest algorithms of convolutions in a file per GPU and cuDNN version.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::candidates::ConvAlgorithm;
use crate::cuda::driver::{cache, library};

/// The known fastest algorithms. The key is the convolution with its direction and number of images.
pub struct Fastest {
    file: Option<PathBuf>,
    known: RefCell<BTreeMap<String, ConvAlgorithm>>,
}

impl Fastest {
    /// Reads the file of this GPU.
    pub fn load(gpu: &str) -> Self {
        let name: String = gpu.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let name = format!("engines-{name}-cudnn-{}.txt", library::cudnn_version());
        let file = cache::folder().map(|folder| folder.join(name));
        let known = file.as_deref().map(read).unwrap_or_default();
        Self { file, known: RefCell::new(known) }
    }

    pub fn get(&self, what: &str) -> Option<ConvAlgorithm> {
        self.known.borrow().get(what).cloned()
    }

    /// Stores an algorithm, also in the file.
    pub fn note(&self, what: String, algorithm: ConvAlgorithm) {
        let mut known = self.known.borrow_mut();
        known.insert(what, algorithm);
        if let Some(file) = &self.file {
            // keep entries that other processes have added in the meantime
            read(file).into_iter().for_each(|(what, algorithm)| {
                known.entry(what).or_insert(algorithm);
            });
            cache::write(file, print(&known).as_bytes());
        }
    }
}

fn read(file: &Path) -> BTreeMap<String, ConvAlgorithm> {
    let text = cache::read(file).and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(|text| parse(&text)).unwrap_or_default()
}

fn parse(text: &str) -> BTreeMap<String, ConvAlgorithm> {
    let line = |line: &str| {
        line.split_once('\t').and_then(|(algorithm, what)| Some((what.to_string(), ConvAlgorithm::parse(algorithm)?)))
    };
    text.lines().filter_map(line).collect()
}

fn print(known: &BTreeMap<String, ConvAlgorithm>) -> String {
    known.iter().map(|(what, algorithm)| format!("{algorithm}\t{what}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fastest_algorithms_are_parsed_from_their_own_text() {
        let algorithm = |text| ConvAlgorithm::parse(text).unwrap();
        let known = BTreeMap::from([("a b".to_string(), algorithm("3 1=62")), ("c".to_string(), algorithm("0"))]);
        assert_eq!(parse(&print(&known)), known);
        assert!(parse("rubbish\n1\n1 x\ty\n").is_empty());
    }
}
