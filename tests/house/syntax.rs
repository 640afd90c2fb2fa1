//! What a source file defines, imports and names, read from its tokens without a compiler.

use crate::tokens::{Token, tokens};

/// A path of names from the root of a crate.
pub type Module = Vec<String>;

/// How a file names a path.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// `use path as name;`; a glob has the name `*`.
    Import { name: String, public: bool },
    /// In an expression, a type, a macro.
    Path,
    /// One identifier that may have come from a re-export or a glob.
    Word,
}

/// A path that a file names.
#[derive(Debug)]
pub struct Mention {
    /// The module in which it stands.
    pub module: Module,
    /// The path as written.
    pub path: Vec<String>,
    pub how: How,
    /// Below `#[cfg(test)]`.
    pub test: bool,
}

/// Namespaces of Rust.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Space {
    Type,
    Value,
    Macro,
}

/// Something that a module defines.
#[derive(Debug)]
pub struct Item {
    pub module: Module,
    pub name: String,
    pub space: Space,
}

/// A source file, read.
#[derive(Debug, Default)]
pub struct File {
    /// From the root of the repository.
    pub path: String,
    pub text: String,
    pub tokens: Vec<Token>,
    /// The module that the file is.
    pub module: Module,
    /// Modules in braces within it.
    pub inline: Vec<Module>,
    /// Modules that it declares for tests alone, in files of their own.
    pub test_modules: Vec<Module>,
    pub items: Vec<Item>,
    pub mentions: Vec<Mention>,
}

/// The module that a file is: `src/nn/graph.rs` is `nn::graph`; `lib.rs` is the root, `main.rs` a root of its own.
pub fn module(path: &str) -> Module {
    let inner = path.split_once("src/").map_or(path, |(_, inner)| inner).trim_end_matches(".rs");
    let parts = inner.trim_end_matches("/mod").split('/');
    parts.filter(|part| *part != "lib").map(String::from).collect()
}

/// Reads a file.
pub fn parse(path: &str, text: &str) -> File {
    let module = module(path);
    let home = vec![module.clone()];
    let file = File { path: path.into(), text: text.into(), tokens: tokens(text), module, ..File::default() };
    let mut reader = Reader { at: 0, home, open: Vec::new(), test_end: 0, file };
    while reader.at < reader.file.tokens.len() {
        reader.step();
    }
    reader.file
}

fn starts_path(token: &str) -> bool {
    token.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
}

/// A path from the root of its crate, without `crate`, as the file writes it; None where it begins elsewhere.
pub fn absolute(mention: &Mention) -> Option<Vec<String>> {
    let (path, home) = (&mention.path, &mention.module);
    let ups = path.iter().take_while(|part| *part == "super").count();
    match path.first()?.as_str() {
        "super" => Some([&home[..home.len().checked_sub(ups)?], &path[ups..]].concat()),
        "self" => Some([home, &path[1..]].concat()),
        "crate" => Some(path[1..].to_vec()),
        _ => None,
    }
}

struct Reader {
    at: usize,
    /// Modules around the present token, the innermost last.
    home: Vec<Module>,
    /// Braces around it; true for those of a module.
    open: Vec<bool>,
    /// Where what is below `#[cfg(test)]` ends.
    test_end: usize,
    file: File,
}

impl Reader {
    fn token(&self, ahead: usize) -> &str {
        self.file.tokens.get(self.at + ahead).map_or("", |token| &token.text)
    }

    fn before(&self, back: usize) -> &str {
        self.at.checked_sub(back).map_or("", |at| &self.file.tokens[at].text)
    }

    /// Reads what begins at the present token, and goes past it.
    fn step(&mut self) {
        self.define();
        let token = self.token(0).to_string();
        match token.as_str() {
            "#" if self.attribute_is_test() => self.begin_test(),
            "mod" if self.token(2) == "{" => self.open_module(),
            "mod" if self.token(2) == ";" && self.at < self.test_end => self.declare_test_module(),
            "{" => self.open_braces(),
            "}" => self.close_braces(),
            "use" if self.token(1) != "<" => self.import(),
            // the rest of `<T>::name` and of `value.method::<T>()` is no path of ours
            "::" if starts_path(self.before(1)) || self.before(1) == ">" => self.at += 2,
            word if starts_path(word) => self.path_or_word(),
            _ => self.at += 1,
        }
    }

    fn open_module(&mut self) {
        let inner = [self.home[self.home.len() - 1].as_slice(), &[self.token(1).to_string()]].concat();
        self.file.inline.push(inner.clone());
        self.home.push(inner);
        self.open.push(true);
        self.at += 3;
    }

    fn declare_test_module(&mut self) {
        let home = self.home[self.home.len() - 1].as_slice();
        self.file.test_modules.push([home, &[self.token(1).to_string()]].concat());
        self.at += 3;
    }

    fn open_braces(&mut self) {
        self.open.push(false);
        self.at += 1;
    }

    fn close_braces(&mut self) {
        if self.open.pop() == Some(true) {
            self.home.pop();
        }
        self.at += 1;
    }

    fn attribute_is_test(&self) -> bool {
        ["#", "[", "cfg", "(", "test", ")", "]"].iter().enumerate().all(|(i, t)| self.token(i) == *t)
    }

    /// What an attribute belongs to ends with its braces, or with a semicolon.
    fn begin_test(&mut self) {
        self.at += 7;
        let mut depth = 0i32;
        let mut end = self.at;
        while end < self.file.tokens.len() {
            match self.file.tokens[end].text.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            let token = self.file.tokens[end].text.as_str();
            end += 1;
            if depth < 0 || depth == 0 && matches!(token, "}" | ";") {
                break;
            }
        }
        self.test_end = self.test_end.max(end);
    }

    /// Notes what a module defines here, without going on.
    fn define(&mut self) {
        if self.open.last() == Some(&false) {
            return;
        }
        let (name, space) = match self.token(0) {
            "struct" | "enum" | "trait" | "type" => (self.token(1), Space::Type),
            "fn" => (self.token(1), Space::Value),
            "static" if self.token(1) == "mut" => (self.token(2), Space::Value),
            "static" | "const" if self.token(2) == ":" => (self.token(1), Space::Value),
            "macro_rules" => (self.token(2), Space::Macro),
            _ => return,
        };
        if starts_path(name) {
            let module = self.home[self.home.len() - 1].clone();
            self.file.items.push(Item { module, name: name.to_string(), space });
        }
    }

    fn mention(&mut self, path: Vec<String>, how: How) {
        let module = self.home[self.home.len() - 1].clone();
        self.file.mentions.push(Mention { module, path, how, test: self.at < self.test_end });
    }

    fn import(&mut self) {
        let public = self.before(1) == "pub" || self.before(1) == ")";
        self.at += 1;
        let foreign = self.token(0) == "::";
        if foreign {
            self.at += 1;
        }
        let mut prefix = if foreign { vec!["::".to_string()] } else { Vec::new() };
        self.tree(&mut prefix, public);
    }

    /// Reads one `use` tree below `prefix`.
    fn tree(&mut self, prefix: &mut Vec<String>, public: bool) {
        let depth = prefix.len();
        loop {
            if self.token(0) == "{" {
                self.at += 1;
                while self.token(0) != "}" && self.at < self.file.tokens.len() {
                    if self.token(0) == "," {
                        self.at += 1;
                    } else {
                        self.tree(prefix, public);
                    }
                }
                self.at += 1;
                break;
            }
            prefix.push(self.token(0).to_string());
            self.at += 1;
            if self.token(0) == "::" {
                self.at += 1;
                continue;
            }
            let mut path = prefix.clone();
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let mut name = path.last().cloned().unwrap_or_default();
            if self.token(0) == "as" {
                name = self.token(1).to_string();
                self.at += 2;
            }
            self.mention(path, How::Import { name, public });
            break;
        }
        prefix.truncate(depth);
    }

    fn path_or_word(&mut self) {
        let mut path = vec![self.token(0).to_string()];
        if self.token(1) != "::" {
            let called = matches!(self.token(1), "(" | "!");
            let capital = path[0].starts_with(char::is_uppercase);
            if self.before(1) != "." && self.before(1) != "fn" && (capital || called) {
                self.mention(path, How::Word);
            }
            self.at += 1;
            return;
        }
        while self.token(1) == "::" && self.token(2) != "<" {
            self.at += 2;
            path.push(self.token(0).to_string());
        }
        self.at += 1;
        self.mention(path, How::Path);
    }
}
