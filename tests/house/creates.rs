//! Who creates files: `loaders::safe_create` alone, so that no link that somebody has put into a folder is followed. Held by reading the
//! sources; tests are free.

use crate::package::Package;
use crate::syntax::File;

/// Words in a row, by which the standard library, libc, HDF5 or the image crate create, empty, extend or link files.
const WAYS: &[&str] = &[
    "File :: create",
    "File :: create_new",
    "File :: create_buffered",
    ". create ( true",
    ". create_new ( true",
    ". write ( true",
    ". append ( true",
    ". truncate ( true",
    "fs :: write",
    "fs :: copy",
    "fs :: hard_link",
    "unix :: fs :: symlink",
    "O_CREAT",
    "OFlags :: CREATE",
    "mkstemp",
    "fopen",
    "save_buffer",
    "save_with_format",
    "H5File :: create",
    "H5Fcreate",
    ". with_fcpl",
];

/// Imports that would hide one of them.
const IMPORTS: &[&str] = &["fs::write", "fs::copy", "fs::hard_link", "fs::symlink"];

/// The places where one of them may stand, each with what it does there.
const ALLOWED: &[(&str, &str)] = &[
    ("loaders/src/file/safe_create.rs", ". create_new ( true"),
    ("loaders/src/file/safe_create.rs", ". write ( true"),
    ("loaders/src/file/safe_create.rs", ". append ( true"),
    // the option of HDF5 itself, and the name of a new file for it
    ("src/checkpoint/h5.rs", ". with_fcpl"),
    ("src/checkpoint/h5.rs", "H5File :: create ( & new . name ( ) )"),
    // standard output, which the parent process has made a file of its own
    ("src/checkpoint/foreign.rs", "H5File :: create ( to )"),
    ("src/checkpoint/foreign_weights.rs", "H5File :: create ( to )"),
    // behind the HDF5 data of the same new file
    ("src/checkpoint/checksum.rs", ". append ( true"),
    // for tests alone, which change a file of their own
    ("src/checkpoint/checksum.rs", "fs :: write ( path , & * bytes )"),
    // built for fuzzing alone, into a file of its own
    ("data-tools/src/kinds/fuzzing.rs", "fs :: write"),
    // whether a device may be opened
    ("src/train/agree/gpus.rs", ". write ( true"),
];

/// The words of a file before its tests, with a space after each.
pub fn words(file: &File) -> String {
    let words: Vec<&str> = file.tokens.iter().map(|token| token.text.as_str()).collect();
    let tests: Vec<&str> = "# [ cfg ( test ) ] mod".split(' ').collect();
    // its name, and its code; a module of another file ends with its name
    let begins = |at: &usize| words[*at..].starts_with(&tests) && words.get(at + tests.len() + 1) == Some(&"{");
    let end = (0..words.len()).find(begins).unwrap_or(words.len());
    words[..end].iter().map(|word| format!("{word} ")).collect()
}

/// How often a row of words stands in a text of [`words`].
pub fn count(text: &str, row: &str) -> usize {
    format!(" {text}").matches(&format!(" {row} ")).count()
}

/// The files of a package that are not tests alone.
pub fn sources(package: &Package) -> impl Iterator<Item = &File> {
    let test =
        |file: &File| package.files.iter().any(|other| other.test_modules.iter().any(|m| file.module.starts_with(m)));
    package.files.iter().filter(move |file| !test(file))
}

fn breaches(package: &Package) -> Vec<String> {
    sources(package).flat_map(breaches_of).collect()
}

fn breaches_of(file: &File) -> Vec<String> {
    let text = words(file);
    let allowed = |way: &str| {
        let rows = ALLOWED.iter().filter(|(path, row)| *path == file.path && row.starts_with(way));
        rows.map(|(_, row)| count(&text, row)).max().unwrap_or(0)
    };
    let ways = WAYS.iter().filter(|way| count(&text, way) > allowed(way));
    let imported = |end: &&&str| file.mentions.iter().any(|m| !m.test && m.path.join("::").ends_with(**end));
    let imports = IMPORTS.iter().filter(imported).filter(|end| count(&text, &end.replace("::", " :: ")) == 0);
    ways.chain(imports).map(|way| format!("{}: {way}", file.path)).collect()
}

#[test]
fn files_are_created_in_one_place() {
    let packages = Package::all();
    let found: Vec<String> = packages.iter().flat_map(breaches).collect();
    assert!(found.is_empty(), "create files by loaders::safe_create:\n{}", found.join("\n"));
    let there = |path: &str, row: &str| {
        packages.iter().flat_map(|package| &package.files).any(|file| file.path == path && count(&words(file), row) > 0)
    };
    let stale: Vec<_> = ALLOWED.iter().filter(|(path, row)| !there(path, row)).collect();
    assert!(stale.is_empty(), "allowed, but gone: {stale:?}");
}

#[test]
fn each_way_is_found() {
    let found = |path: &str, text: &str| breaches(&Package::new("trireme", vec![(path.into(), text.into())]));
    for text in [
        "fn f() { let x = File::create(path)?; }",
        "fn f() { std::fs::write(path, text) }",
        "use std::fs::write; fn f() { write(path, text) }",
        "fn f() { fs::copy(a, b) }",
        "fn f() { OpenOptions::new().create(true).open(path) }",
        "fn f() { File::options().append(true).open(path) }",
        "fn f() { H5File::create(path) }",
        "fn f() { let h = libc::open(name, libc::O_CREAT); }",
    ] {
        assert_eq!(found("src/train/step.rs", text).len(), 1, "{text}: {:?}", found("src/train/step.rs", text));
    }
    assert_eq!(found("src/checkpoint/h5.rs", "fn f() { H5File::create(&new.name()) }"), [""; 0]);
    assert_eq!(found("src/checkpoint/h5.rs", "fn f() { H5File::create(&new.name()); H5File::create(path) }").len(), 1);
    for text in ["fn f() { safe_create::create_new(path) }", "#[cfg(test)] mod tests { fn f() { fs::write(a, b) } }"] {
        assert_eq!(found("src/train/step.rs", text), [""; 0], "{text}");
    }
}
