//! How long files, functions and lines may be.

use crate::package::Package;
use crate::syntax::File;

/// Lines of the longest file.
const LONGEST_FILE: usize = 400;
/// Lines of the median file.
const MEDIAN_FILE: usize = 130;
/// Lines of the longest function, from `fn` to its last brace.
const LONGEST_FUNCTION: usize = 60;
/// Lines that nine of ten functions do not exceed.
const USUAL_FUNCTION: usize = 25;
/// Characters of the longest line.
const LONGEST_LINE: usize = 140;

/// A function with a body.
struct Function {
    /// Name and place.
    name: String,
    lines: usize,
}

/// The functions of a file, nested ones too.
fn functions(file: &File) -> Vec<Function> {
    let text = |at: usize| file.tokens.get(at).map_or("", |token| &token.text);
    let mut found = Vec::new();
    for at in 0..file.tokens.len() {
        if text(at) != "fn" || text(at + 1) == "(" {
            continue;
        }
        let (mut depth, mut end) = (0usize, at + 2);
        while end < file.tokens.len() {
            match text(end) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(text(end), "}" | ";") {
                break;
            }
            end += 1;
        }
        if text(end) == "}" {
            let (first, last) = (file.tokens[at].line, file.tokens[end].line);
            found.push(Function { name: format!("{}:{first}: {}", file.path, text(at + 1)), lines: last + 1 - first });
        }
    }
    found
}

/// The number that a share of all numbers do not exceed.
fn quantile(mut numbers: Vec<usize>, share: f64) -> usize {
    numbers.sort_unstable();
    let rank = (numbers.len() as f64 * share).ceil() as usize;
    numbers.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// What is longer than it may be.
fn excesses(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    let lengths: Vec<usize> = files.iter().map(|file| file.text.lines().count()).collect();
    for (file, lines) in files.iter().zip(&lengths).filter(|(_, lines)| **lines > LONGEST_FILE) {
        found.push(format!("{}: {lines} lines, expected at most {LONGEST_FILE}", file.path));
    }
    for file in files {
        let long = file.text.lines().enumerate().filter(|(_, line)| line.chars().count() > LONGEST_LINE);
        found.extend(long.map(|(i, _)| format!("{}:{}: more than {LONGEST_LINE} characters", file.path, i + 1)));
    }
    let functions: Vec<Function> = files.iter().flat_map(functions).collect();
    for function in functions.iter().filter(|function| function.lines > LONGEST_FUNCTION) {
        found.push(format!("{}: {} lines, expected at most {LONGEST_FUNCTION}", function.name, function.lines));
    }
    let median = quantile(lengths, 0.5);
    if median > MEDIAN_FILE {
        found.push(format!("the median file has {median} lines, expected at most {MEDIAN_FILE}"));
    }
    let usual = quantile(functions.iter().map(|function| function.lines).collect(), 0.9);
    if usual > USUAL_FUNCTION {
        found.push(format!("nine of ten functions have up to {usual} lines, expected at most {USUAL_FUNCTION}"));
    }
    found
}

#[test]
fn nothing_is_longer_than_it_may_be() {
    let found: Vec<String> = Package::all().iter().flat_map(|package| excesses(&package.files)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_kind_of_excess_is_found() {
    let excesses_of = |text: &str| excesses(&Package::new("trireme", vec![("src/a.rs".into(), text.into())]).files);
    let function =
        |lines: usize| format!("fn a(x: fn(u8) -> [u8; 2]) {{\n{}}}\nfn b();\n", "    f();\n".repeat(lines - 2));
    let line = |characters: usize| format!("// {}\n", "é".repeat(characters - 3));
    for text in ["\n".repeat(MEDIAN_FILE), function(USUAL_FUNCTION), line(LONGEST_LINE)] {
        assert_eq!(excesses_of(&text), [""; 0]);
    }
    for (text, expected) in [
        ("\n".repeat(LONGEST_FILE + 1), format!("src/a.rs: {} lines", LONGEST_FILE + 1)),
        ("\n".repeat(MEDIAN_FILE + 1), format!("the median file has {} lines", MEDIAN_FILE + 1)),
        (line(LONGEST_LINE + 1), "src/a.rs:1: more than".into()),
        (function(LONGEST_FUNCTION + 1), format!("src/a.rs:1: a: {} lines", LONGEST_FUNCTION + 1)),
        (function(USUAL_FUNCTION + 1), format!("nine of ten functions have up to {} lines", USUAL_FUNCTION + 1)),
    ] {
        let found = excesses_of(&text);
        assert!(found.iter().any(|what| what.starts_with(&expected)), "no \"{expected}\" in {found:?}");
    }
}
