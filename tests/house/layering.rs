//! Who may import whom, held by reading the sources: the arrows between the packages and between the modules of the root
//! package, the one place of each foreign library, where `unsafe` may stand, and how long a file may be.
//!
//! What counts is paths: `use` trees and paths in expressions alike, `super` and `self` resolved. Comments and strings do not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// For each module of the root package, the other modules that it may name; `a::b` allows that part of `a` alone.
const ARROWS: &[(&str, &[&str])] = &[
    ("simd", &[]),
    ("bf16", &["simd"]),
    ("coding", &[]),
    ("region", &[]),
    ("backend", &["bf16", "coding", "region", "simd"]),
    ("comm", &["bf16", "coding", "region", "simd"]),
    ("checkpoint", &[]),
    ("report", &[]),
    ("nn", &["backend"]),
    ("models", &["nn::spec"]),
    ("optim", &["backend", "nn"]),
    ("recipe", &["comm::codec", "optim::schedule", "optim::spec"]),
    ("cores", &[]),
    ("error", &["backend", "checkpoint", "comm", "nn", "optim", "recipe", "report"]),
    (
        "train",
        &[
            "backend",
            "checkpoint",
            "comm",
            "cores",
            "error",
            "launch",
            "models",
            "nn",
            "optim",
            "recipe",
            "report",
            "eval",
        ],
    ),
    ("eval", &["backend", "checkpoint", "comm", "cores", "error", "launch", "nn", "recipe", "report", "train"]),
    ("bench", &["backend", "comm", "cores", "error", "launch", "models", "nn", "optim", "recipe", "train"]),
    ("doctor", &["backend", "bench", "comm", "error", "launch", "train"]),
    ("launch", &["backend", "bench", "comm", "error", "eval", "train"]),
    ("cli", &["bench", "cores", "doctor", "error", "eval", "launch", "recipe", "train"]),
    ("main", &["cli", "comm"]),
];

/// For each package, the packages of ours that it may name.
const PACKAGES: &[(&str, &[&str])] =
    &[("loaders", &[]), ("data-tools", &["loaders"]), ("src", &["loaders", "data_tools", "trireme"])];

/// Crates that only files below one folder may name.
const FOREIGN: &[(&str, &str)] = &[
    ("mpi", "src/comm/"),
    ("mpi_sys", "src/comm/"),
    ("hdf5", "src/checkpoint/"),
    ("hdf5_metno", "src/checkpoint/"),
    ("hdf5_sys", "src/checkpoint/"),
    ("clap", "src/cli/"),
    ("cudarc", "src/backend/cuda/"),
];

/// Beginnings of words of oneDNN's C API, and the one folder that may use them.
const ONEDNN: (&[&str], &str) = (&["dnnl", "DNNL"], "src/backend/cpu/");

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &[
    "loaders/src/decode/jpeg.rs",
    "loaders/src/storage/mapping.rs",
    "loaders/src/storage/sigbus/handler.rs",
    "loaders/src/transform/resample/mix.rs",
    "loaders/src/transform/resample/plane.rs",
    "loaders/src/transform/rgb.rs",
    "src/backend/cpu/",
    "src/backend/cuda/",
    "src/comm/sys/",
    "src/region.rs",
    "src/simd.rs",
];

/// Outside of `backend`, the files that may name a concrete backend.
const CONCRETE: &[&str] = &["src/launch.rs", "src/doctor.rs"];

/// Lines of the longest file.
const LONGEST: usize = 500;

/// A source file: its path from the root of the repository, and its text.
struct Source {
    path: String,
    text: String,
}

/// Words and punctuation of a Rust text; `::` is one token, lifetimes, comments, and literals of text are none.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        let rest = &chars[at..];
        at += match rest {
            ['/', '/', ..] => rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
            ['/', '*', ..] => comment(rest),
            ['r', '"' | '#', ..] | ['b', 'r', '"' | '#', ..] if raw_string(rest).is_some() => {
                raw_string(rest).unwrap_or(1)
            }
            ['"', ..] => quoted(rest, '"'),
            ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
            ['\'', ..] => 1 + rest[1..].iter().take_while(|&&c| word(c)).count(),
            [':', ':', ..] => {
                found.push("::".into());
                2
            }
            [c, ..] if word(*c) => {
                let length = rest.iter().take_while(|&&c| word(c)).count();
                found.push(rest[..length].iter().collect());
                length
            }
            [c, ..] => {
                if !c.is_whitespace() {
                    found.push(c.to_string());
                }
                1
            }
            [] => 1,
        };
    }
    found
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

/// Length of a literal in these quotes, backslashes heeded.
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

/// The module that a file of the root package is: `src/nn/graph.rs` is `nn::graph`.
fn module(path: &str) -> Vec<String> {
    let inner = path.split_once("src/").map_or(path, |(_, inner)| inner).trim_end_matches(".rs");
    let parts = inner.trim_end_matches("/mod").split('/');
    parts.filter(|part| *part != "lib").map(String::from).collect()
}

/// Every path that a file names, from its crate's root (`crate::...`) or from another crate's name.
fn paths(source: &Source) -> BTreeSet<String> {
    let tokens = tokens(&source.text);
    let mut found = BTreeSet::new();
    let mut home = vec![module(&source.path)];
    let mut braces: Vec<bool> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let token = |i: usize| tokens.get(i).map_or("", String::as_str);
        match token(at) {
            "mod" if token(at + 2) == "{" => {
                let inner = [home[home.len() - 1].as_slice(), &[token(at + 1).to_string()]].concat();
                home.push(inner);
                braces.push(true);
                at += 3;
            }
            "{" => {
                braces.push(false);
                at += 1;
            }
            "}" => {
                if braces.pop() == Some(true) {
                    home.pop();
                }
                at += 1;
            }
            // the rest of `<T>::name` and of `value.method::<T>()` is no path of ours
            "::" => at += 2,
            first if starts_path(first) && (token(at + 1) == "::" || token(at.wrapping_sub(1)) == "use") => {
                at = tree(&tokens, at, &mut Vec::new(), &home[home.len() - 1], &mut found);
            }
            // of another crate, whatever modules are called
            "use" if token(at + 1) == "::" => {
                at = tree(&tokens, at + 2, &mut Vec::new(), &home[home.len() - 1], &mut found);
            }
            "use" if token(at + 1) == "{" => {
                at = tree(&tokens, at + 1, &mut Vec::new(), &home[home.len() - 1], &mut found)
            }
            _ => at += 1,
        }
    }
    found
}

fn starts_path(token: &str) -> bool {
    token.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_') && token != "use"
}

/// Reads one `use` tree, or one path, that begins at `at` below `prefix`; returns where it ends.
fn tree(
    tokens: &[String],
    mut at: usize,
    prefix: &mut Vec<String>,
    home: &[String],
    found: &mut BTreeSet<String>,
) -> usize {
    let token = |i: usize| tokens.get(i).map_or("", String::as_str);
    let depth = prefix.len();
    loop {
        if token(at) == "{" {
            at += 1;
            while token(at) != "}" && at < tokens.len() {
                at = if token(at) == "," { at + 1 } else { tree(tokens, at, prefix, home, found) };
            }
            at += 1;
            break;
        }
        prefix.push(token(at).to_string());
        at += 1;
        if token(at) != "::" || token(at + 1) == "<" {
            found.extend(resolve(prefix, home));
            if token(at) == "as" {
                at += 2;
            }
            break;
        }
        at += 1;
    }
    prefix.truncate(depth);
    at
}

/// A path from the root: `super` and `self` leave it or stay in it.
fn resolve(path: &[String], home: &[String]) -> Option<String> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let rest = match path.first()?.as_str() {
        "super" => [&home[..home.len().checked_sub(ups)?], &path[ups..]].concat(),
        "self" => [home, &path[1..]].concat(),
        "crate" => path[1..].to_vec(),
        _ => return Some(path.join("::")),
    };
    Some([&["crate".to_string()], rest.as_slice()].concat().join("::"))
}

/// Every breach of the rules, as `file: what`.
fn breaches(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(|s| breaches_of(s).into_iter().map(|what| format!("{}: {what}", s.path))).collect()
}

fn breaches_of(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let below = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
    let (paths, tokens) = (paths(source), tokens(text));
    let mut found = package_breaches(path, &paths);
    if path.starts_with("src/") {
        found.extend(arrow_breaches(&module(path), &paths));
    }
    for (name, folder) in FOREIGN {
        let names = paths.iter().find(|p| p.split("::").next() == Some(name));
        let main = path == "src/main.rs" && *name == "clap";
        found.extend(names.filter(|_| !below(&[folder]) && !main).map(|p| format!("{p}: only {folder} names {name}")));
    }
    let onednn = tokens.iter().find(|t| ONEDNN.0.iter().any(|start| t.starts_with(start)));
    found.extend(onednn.filter(|_| !below(&[ONEDNN.1])).map(|t| format!("{t}: only {} names oneDNN", ONEDNN.1)));
    if tokens.iter().any(|t| t == "unsafe") && !below(UNSAFE) {
        found.push("unsafe".into());
    }
    let concrete = paths
        .iter()
        .find(|p| ["cpu", "cuda", "reference"].iter().any(|b| p.starts_with(&format!("crate::backend::{b}"))));
    let free = path.starts_with("src/backend/") || !path.starts_with("src/") || below(CONCRETE);
    found.extend(concrete.filter(|_| !free && !only_in_tests(source)).map(|p| format!("{p}: a concrete backend")));
    let lines = text.lines().count();
    if lines > LONGEST {
        found.push(format!("{lines} lines, expected at most {LONGEST}"));
    }
    found
}

/// Whether a concrete backend is named only below the file's `#[cfg(test)]`, where some backend must be.
fn only_in_tests(source: &Source) -> bool {
    let head = source.text.split("#[cfg(test)]").next().unwrap_or_default().to_string();
    let head = Source { path: source.path.clone(), text: head };
    let named =
        |p: &String| ["cpu", "cuda", "reference"].iter().any(|b| p.starts_with(&format!("crate::backend::{b}")));
    !paths(&head).iter().any(named)
}

fn package_breaches(path: &str, paths: &BTreeSet<String>) -> Vec<String> {
    let Some((package, allowed)) = PACKAGES.iter().find(|(package, _)| path.starts_with(package)) else {
        return vec!["belongs to no package that this test knows".into()];
    };
    let ours = ["trireme", "loaders", "data_tools"];
    let named = paths.iter().filter(|p| p.split("::").next().is_some_and(|first| ours.contains(&first)));
    let own = package.replace('-', "_");
    let bad = named.filter(|p| p.split("::").next().is_some_and(|first| first != own && !allowed.contains(&first)));
    bad.map(|p| format!("{p}: {package} may name {allowed:?}")).collect()
}

fn arrow_breaches(module: &[String], paths: &BTreeSet<String>) -> Vec<String> {
    let Some(own) = module.first() else { return Vec::new() };
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| name == own) else {
        return vec![format!("module {own} has no place in the design")];
    };
    let inner = paths.iter().filter_map(|p| p.strip_prefix("crate::").or_else(|| p.strip_prefix("trireme::")));
    let others = inner.filter(|p| ARROWS.iter().any(|(name, _)| p.split("::").next() == Some(name) && name != own));
    let within = |p: &str, a: &str| p == a || p.strip_prefix(a).is_some_and(|rest| rest.starts_with("::"));
    let bad = others.filter(|p| !allowed.iter().any(|a| within(p, a)));
    bad.map(|p| format!("{p}: {own} may name {allowed:?}")).collect()
}

fn read(folder: &Path, root: &Path, sources: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            read(&path, root, sources);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            sources.push(Source { path: path.strip_prefix(root).unwrap().display().to_string(), text });
        }
    }
}

#[test]
fn every_source_keeps_to_the_rules() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in ["src", "loaders/src", "data-tools/src"] {
        read(&root.join(folder), &root, &mut sources);
    }
    assert!(sources.len() > 100, "only {} files", sources.len());
    let found = breaches(&sources);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let unused = |module: &str| !sources.iter().any(|s| self::module(&s.path).first().is_some_and(|m| m == module));
    let stale: Vec<&str> = ARROWS.iter().map(|(module, _)| *module).filter(|module| unused(module)).collect();
    assert_eq!(stale, [""; 0], "modules of the table that are gone");
}

/// Cargo holds the arrows between packages, as long as the manifests do.
#[test]
fn packages_depend_on_no_more_than_they_may() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let expected: [(&str, &[&str]); 3] =
        [("loaders", &[]), ("data-tools", &["loaders"]), (".", &["data-tools", "loaders"])];
    for (package, ours) in expected {
        let text = fs::read_to_string(root.join(package).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        let local: Vec<&str> =
            dependencies.iter().filter(|(_, d)| d.get("path").is_some()).map(|(name, _)| name.as_str()).collect();
        assert_eq!(local, ours, "{package}");
        for library in ["mpi", "hdf5-metno"] {
            assert_eq!(dependencies.contains_key(library), package == ".", "{library} in {package}");
        }
    }
}

#[track_caller]
fn assert_breach(path: &str, text: &str, expected: &str) {
    let found = breaches_of(&Source { path: path.into(), text: text.into() });
    assert!(found.iter().any(|what| what.contains(expected)), "no \"{expected}\" in {found:?} of {path}:\n{text}");
}

#[track_caller]
fn assert_clean(path: &str, text: &str) {
    let found = breaches_of(&Source { path: path.into(), text: text.into() });
    assert_eq!(found, [""; 0], "{path}:\n{text}");
}

#[test]
fn each_kind_of_breach_is_found() {
    assert_breach("src/nn/graph.rs", "use crate::train::step;", "train::step: nn may name");
    for text in [
        "use crate::{backend::Buffer, comm::{self, Comm}};",
        "fn f() { crate::comm::die(1, \"\") }",
        "use super::super::comm::Comm;",
        "mod tests { use super::super::super::comm::Comm; }",
        "type A = Vec<crate::comm::Comm>;",
        "use trireme::comm;",
    ] {
        assert_breach("src/nn/graph.rs", text, "comm");
    }
    assert_breach("src/models/vgg.rs", "use crate::nn::Graph;", "models may name [\"nn::spec\"]");
    assert_breach("src/models/vgg.rs", "use crate::nn::specials::X;", "nn::specials::X");
    assert_breach("src/nets/vgg.rs", "", "no place in the design");
    assert_breach("loaders/src/order.rs", "use trireme::comm::Comm;", "loaders may name []");
    assert_breach("loaders/src/order.rs", "use data_tools::info;", "loaders may name []");
    assert_breach("data-tools/src/info.rs", "fn f() { trireme::cli::run() }", "trireme::cli::run");
    assert_breach("src/train/step.rs", "use mpi::ffi;", "only src/comm/ names mpi");
    assert_breach("src/train/step.rs", "use ::mpi::traits::*;", "only src/comm/ names mpi");
    assert_breach("src/train/output.rs", "let f = hdf5_metno::File::create(p);", "only src/checkpoint/");
    assert_breach("src/train/bench.rs", "let v = dnnl_version();", "only src/backend/cpu/ names oneDNN");
    assert_breach("src/nn/memory.rs", "fn f() { unsafe { g() } }", "unsafe");
    assert_breach("src/comm/thread.rs", "unsafe impl Send for X {}", "unsafe");
    for text in ["use crate::backend::cpu::Cpu;", "use crate::backend::{self, reference::Reference};"] {
        assert_breach("src/train/step.rs", text, "a concrete backend");
    }
    assert_breach("src/train/step.rs", &"\n".repeat(501), "501 lines, expected at most 500");
}

#[test]
fn what_is_allowed_is_no_breach() {
    assert_clean("src/nn/graph.rs", "use crate::backend::{Arena, op::Op};\nuse super::spec::NetSpec;\nuse std::comm;");
    assert_clean(
        "src/nn/graph.rs",
        "// use crate::train;\n/* mpi::ffi /* unsafe */ */ const S: &str = \"crate::comm\";",
    );
    assert_clean(
        "src/nn/graph.rs",
        "const R: &str = r#\"use \"crate::cli\" unsafe\"#; const C: char = '\"'; // unsafe",
    );
    assert_clean("src/nn/graph.rs", "fn f<'a>(x: &'a str) -> char { '\\'' } // crate::comm");
    assert_clean("src/nn/mod.rs", "mod tests { use super::graph; }\nuse self::spec::X;\nuse super::backend::Buffer;");
    assert_clean("src/models/vgg.rs", "use crate::nn::spec::{Conv, NetSpec};");
    assert_clean("src/main.rs", "use trireme::cli::{self, exit};\nuse trireme::comm;\nuse clap::Parser;");
    assert_clean("src/launch.rs", "use crate::backend::cpu::Cpu;");
    assert_clean("src/nn/graph.rs", "#[cfg(test)]\nmod tests { use crate::backend::reference::Reference; }");
    assert_clean("src/comm/sys/", "use mpi::ffi;\nunsafe fn f() {}");
    assert_clean("src/backend/cpu/onednn.rs", "fn f() { unsafe { dnnl_version() }; }");
    assert_clean("data-tools/src/info.rs", "use loaders::{Dataset, shard::{self, Shard}};");
    assert_clean("src/cli/data.rs", "use data_tools::ConvertOptions;\nfn f() { loaders::sigbus::install(); }");
}
