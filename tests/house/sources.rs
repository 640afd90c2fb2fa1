//! The source files of all crates, as token sequences.

use std::fs;
use std::path::Path;

/// The folders with the sources of all crates.
const FOLDERS: &[&str] = &["src", "crates", "loaders/src", "data-tools/src"];

pub struct Source {
    pub path: String,
    pub text: String,
    /// The tokens outside of test modules, each followed by a space.
    pub code: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let mut words = tokens(text);
        let tests = ["#", "[", "cfg", "(", "test", ")", "]", "mod"].map(String::from);
        // the module's name and a brace come next; `mod tests;` has its code in another file
        let begins = |words: &[String], at: usize| {
            words[at..].starts_with(&tests) && words.get(at + 9).is_some_and(|w| w == "{")
        };
        while let Some(start) = (0..words.len()).find(|at| begins(&words, *at)) {
            let (mut depth, mut end) = (0, start + 9);
            while end < words.len() {
                depth += i32::from(words[end] == "{") - i32::from(words[end] == "}");
                end += 1;
                if depth == 0 {
                    break;
                }
            }
            words.drain(start..end);
        }
        Self { path: path.into(), text: text.into(), code: words.iter().map(|word| format!("{word} ")).collect() }
    }

    /// Returns how often a token sequence occurs outside of test modules.
    pub fn count(&self, row: &str) -> usize {
        format!(" {}", self.code).matches(&format!(" {row} ")).count()
    }
}

/// Returns all source files of all crates except test files.
pub fn all() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut sources, mut open) = (Vec::new(), FOLDERS.iter().map(|folder| root.join(folder)).collect::<Vec<_>>());
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                open.push(path);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "build.rs" {
                let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                sources.push(Source::new(&path.strip_prefix(root).unwrap().display().to_string(), &text));
            }
        }
    }
    assert!(sources.len() > 300, "only {} source files", sources.len());
    sources
}

/// Returns the words and punctuation of a Rust text. `::` is one token. Comments, strings and lifetimes are left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        let (length, token) = next(&chars[at..]);
        found.extend(token);
        at += length;
    }
    found
}

/// Returns the length of the next piece of text in characters, and the token that it is, if any.
fn next(rest: &[char]) -> (usize, Option<String>) {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match rest {
        ['/', '/', ..] => (rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()), None),
        ['/', '*', ..] => (comment(rest), None),
        ['r', '"' | '#', ..] | ['b', 'r', '"' | '#', ..] if raw_string(rest).is_some() => {
            (raw_string(rest).unwrap_or(1), None)
        }
        ['"', ..] => (quoted(rest, '"'), None),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => (quoted(rest, '\''), None),
        ['\'', ..] => (1 + rest[1..].iter().take_while(|&&c| word(c)).count(), None),
        [':', ':', ..] => (2, Some("::".into())),
        [c, ..] if word(*c) => {
            let length = rest.iter().take_while(|&&c| word(c)).count();
            (length, Some(rest[..length].iter().collect()))
        }
        [c, ..] => (1, (!c.is_whitespace()).then(|| c.to_string())),
        [] => (1, None),
    }
}

/// Returns the length of the block comment at the start of `text`. Block comments can be nested.
fn comment(text: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match text[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length of the string or character literal at the start of `text`, including both quotes and escapes.
fn quoted(text: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != quote {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the length of the raw string at the start of `text`, or `None` if `text` does not start with one.
fn raw_string(text: &[char]) -> Option<usize> {
    let start = text.iter().position(|&c| c == 'r')? + 1;
    let hashes = text[start..].iter().take_while(|&&c| c == '#').count();
    if text.get(start + hashes) != Some(&'"') {
        return None;
    }
    let body = start + hashes + 1;
    let closes = |at: &usize| text[*at] == '"' && text[*at + 1..].iter().take_while(|&&c| c == '#').count() >= hashes;
    (body..text.len()).find(closes).map(|at| at + 1 + hashes)
}
