//! A Rust text as a list of tokens.

/// Words and punctuation of a Rust text; `::` is one token. Comments, literals of text and lifetimes are left out.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let (length, token) = next(&chars[at..]);
        if let Some(text) = token {
            found.push(Token { text, line });
        }
        line += chars[at..].iter().take(length).filter(|&&c| c == '\n').count();
        at += length;
    }
    found
}

/// A token, and where it begins.
#[derive(Debug)]
pub struct Token {
    pub text: String,
    /// Counted from 1.
    pub line: usize,
}

/// How many characters come next that belong together, and the token that they are, if any.
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

/// Length of a block comment; they nest.
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

/// Length of a literal in these quotes, with escapes.
fn quoted(text: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != quote {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of a raw string, if this is one.
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
