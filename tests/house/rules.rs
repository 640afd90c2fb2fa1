//! Rules about the sources: which crates may depend on each other, and which files may use `unsafe`, create files, name
//! a backend or call oneDNN. Nothing may print with macros that panic on a closed stream.

use std::collections::BTreeSet;
use std::fs;

use crate::sources::{Source, all};

/// Each crate and the crates of this workspace that its Cargo.toml must list as dependencies.
const CRATES: &[(&str, &[&str])] = &[
    ("crates/base", &[]),
    ("loaders", &["base"]),
    ("data-tools", &["base", "loaders"]),
    ("crates/net", &["base"]),
    ("crates/schema", &["base"]),
    ("crates/backend", &["base", "loaders", "net", "schema"]),
    ("crates/engine", &["backend", "base", "loaders", "net", "schema"]),
    ("crates/comm", &["base", "loaders"]),
    ("crates/formats", &["base", "loaders", "net"]),
    ("crates/recipe", &["backend", "base", "comm", "engine", "loaders", "net", "schema"]),
    ("crates/report", &["base", "data-tools", "loaders"]),
    (
        "crates/training",
        &["backend", "base", "comm", "data-tools", "engine", "formats", "loaders", "net", "recipe", "report"],
    ),
];

const LIBRARIES: &[(&str, &str)] =
    &[("mpi", "crates/comm"), ("hdf5-metno", "crates/formats"), ("cudarc", "crates/backend"), ("clap", ".")];

/// Files and folders that may contain `unsafe`.
const UNSAFE: &[&str] = &[
    "crates/backend/src/cpu/",
    "crates/backend/src/cuda/",
    "crates/base/src/device_region.rs",
    "crates/base/src/simd.rs",
    "crates/comm/src/sys/",
    "loaders/src/channels.rs",
    "loaders/src/decode/jpeg/",
    "loaders/src/file/write_back.rs",
    "loaders/src/ring/piece.rs",
    "loaders/src/storage/mapping.rs",
    "loaders/src/storage/sigbus.rs",
    "loaders/src/transform/resample/resampler.rs",
    "loaders/src/transform/resample/plane.rs",
    "loaders/src/transform/paint.rs",
];

/// Token sequences of macros that panic if the output stream is closed or its disk is full.
const PRINT: &[&str] = &["print !", "println !", "eprint !", "eprintln !", "dbg !"];

/// Token sequences that create, empty, extend or link files. `loaders::safe_create` does this without following a link
/// that somebody else has put into the folder.
const CREATE: &[&str] = &[
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

/// Files that may contain token sequences of [`CREATE`]: the file, the sequence, and the maximum number of times.
const MAY_CREATE: &[(&str, &str, usize)] = &[
    ("loaders/src/file/safe_create.rs", ". create_new ( true", 9),
    ("loaders/src/file/safe_create.rs", ". write ( true", 9),
    ("loaders/src/file/safe_create.rs", ". append ( true", 9),
    // `H5File::create` overwrites a file that `safe_create` has created before; `with_fcpl` sets a property of this file
    ("crates/formats/src/checkpoint/h5.rs", ". with_fcpl", 1),
    ("crates/formats/src/checkpoint/h5.rs", "H5File :: create", 1),
    // writes to standard output, which the parent process has redirected to a new file
    ("crates/formats/src/checkpoint/foreign.rs", "H5File :: create", 2),
    // appends a checksum to the HDF5 file that h5.rs has created
    ("crates/formats/src/checkpoint/checksum.rs", ". append ( true", 1),
    // in a test, which changes a temporary file
    ("crates/formats/src/checkpoint/checksum.rs", "fs :: write", 1),
    // built only for tests
    ("crates/backend/src/cuda/kernels/assembly.rs", "fs :: write", 9),
    // built only for fuzzing
    ("data-tools/src/kinds/fuzzing.rs", "fs :: write", 9),
    // opens a GPU's device file to check its permissions
    ("crates/training/src/train/agree/gpus.rs", ". write ( true", 1),
];

/// The files of the program that may name a concrete backend. All others are generic.
const CONCRETE: &[&str] = &["crates/training/src/launch.rs"];

const LONGEST_FILE: usize = 600;
const LONGEST_LINE: usize = 140;

/// Returns every violation of the rules in a file, as `file: what`.
fn breaches(source: &Source) -> Vec<String> {
    let below = |places: &[&str]| places.iter().any(|place| source.path.starts_with(place));
    let has = |row: &str| source.count(row) > 0;
    let mut found = Vec::new();
    if has("unsafe") && !below(UNSAFE) {
        found.push("unsafe; add the file to UNSAFE if it needs it".into());
    }
    if ["dnnl_", "DNNL_"].iter().any(|word| source.code.contains(word)) && !below(&["crates/backend/src/cpu/"]) {
        found.push("names oneDNN".into());
    }
    found.extend(PRINT.iter().filter(|row| has(row)).map(|row| format!("{row}; use screen::say or cli::output")));
    for row in CREATE {
        let allowed = MAY_CREATE.iter().filter(|(path, other, _)| *path == source.path && other == row);
        if source.count(row) > allowed.map(|(_, _, times)| *times).sum() {
            found.push(format!("{row}; create files with loaders::safe_create"));
        }
    }
    let program = below(&["crates/training/", "src/"]) && !below(CONCRETE);
    let backends = ["backend :: cpu", "backend :: cuda", "backend :: reference"];
    found
        .extend(backends.iter().filter(|row| program && has(row)).map(|row| format!("{row}; be generic over Backend")));
    let lines = source.text.lines().count();
    if lines > LONGEST_FILE {
        found.push(format!("{lines} lines, expected at most {LONGEST_FILE}"));
    }
    let long = source.text.lines().enumerate().filter(|(_, line)| line.chars().count() > LONGEST_LINE);
    found.extend(long.map(|(i, _)| format!("line {} has more than {LONGEST_LINE} characters", i + 1)));
    found.into_iter().map(|what: String| format!("{}: {what}", source.path)).collect()
}

#[test]
fn every_source_keeps_the_rules() {
    let sources = all();
    let found: Vec<String> = sources.iter().flat_map(breaches).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let exists = |path: &str, row: &str| sources.iter().any(|source| source.path == path && source.count(row) > 0);
    let stale: Vec<_> = MAY_CREATE.iter().filter(|(path, row, _)| !exists(path, row)).collect();
    assert!(stale.is_empty(), "entries of MAY_CREATE that are no longer needed: {stale:?}");
    let used = |place: &str| sources.iter().any(|source| source.path.starts_with(place) && source.count("unsafe") > 0);
    let stale: Vec<_> = UNSAFE.iter().filter(|place| !used(place)).collect();
    assert!(stale.is_empty(), "entries of UNSAFE without unsafe code: {stale:?}");
}

#[test]
fn each_breach_is_found() {
    let long = format!("// {}", "é".repeat(LONGEST_LINE));
    let many = "\n".repeat(LONGEST_FILE + 1);
    for text in [
        "fn f() { unsafe { g() } }",
        "fn f() { let v = dnnl_version(); }",
        "fn f() { println!(\"x\") }",
        "#[cfg(test)]\nmod tests;\nfn f() { dbg!(1) }",
        "fn f() { let x = File::create(path)?; }",
        "fn f() { std::fs::write(path, text) }",
        "fn f() { OpenOptions::new().create(true).open(path) }",
        "fn f() { let h = libc::open(name, libc::O_CREAT); }",
        "use backend::cpu::Cpu;",
        "#[cfg(test)] mod tests { fn f() { println!() } }\nfn g() { unsafe { h() } }",
        &long,
        &many,
    ] {
        let found = breaches(&Source::new("crates/training/src/train/step.rs", text));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
    for text in [
        "fn f() { safe_create::create_new(path) } // unsafe",
        "fn f() { writeln!(out, \"println!\") }\n#[cfg(test)] mod tests { fn f() { println!(); fs::write(a, b) } }",
        "const S: &str = r#\"unsafe \"dnnl_\" \"#; fn f<'a>(x: &'a str) -> char { '\\'' } /* dbg!() /* */ dbg!() */",
    ] {
        assert_eq!(breaches(&Source::new("crates/training/src/train/step.rs", text)), [""; 0]);
    }
    assert_eq!(
        breaches(&Source::new("crates/formats/src/checkpoint/h5.rs", "H5File::create(&n); H5File::create(p)")).len(),
        1
    );
}

/// Returns a package's dependencies. `list` is the name of the list in its Cargo.toml.
fn dependencies(package: &str, list: &str) -> BTreeSet<String> {
    let path = support::in_repository(package).join("Cargo.toml");
    let manifest: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    manifest.get(list).and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys().cloned()).collect()
}

#[test]
fn crates_depend_on_no_more_than_they_may() {
    let names: Vec<&str> = CRATES.iter().map(|(package, _)| package.rsplit('/').next().unwrap()).collect();
    for (package, allowed) in CRATES {
        let dependencies = dependencies(package, "dependencies");
        let ours: Vec<&str> = dependencies.iter().map(String::as_str).filter(|name| names.contains(name)).collect();
        assert_eq!(ours, *allowed, "{package}");
    }
    for (library, owner) in LIBRARIES {
        for package in CRATES.iter().map(|(package, _)| *package).chain(["."]) {
            let found = dependencies(package, "dependencies").contains(*library);
            assert_eq!(found, package == *owner, "{library} in {package}");
        }
    }
}

#[test]
fn the_page_lists_every_dependency() {
    let packages = || CRATES.iter().map(|(package, _)| *package);
    let ours: Vec<&str> = packages().map(|package| package.rsplit('/').next().unwrap()).collect();
    let used: BTreeSet<String> = packages()
        .chain(["."])
        .flat_map(|package| ["dependencies", "build-dependencies"].map(|list| dependencies(package, list)))
        .flatten()
        .filter(|name| !ours.contains(&name.as_str()))
        .collect();
    let page = fs::read_to_string(support::in_repository("docs/dependencies.md")).unwrap();
    let cells = page.lines().filter(|line| line.starts_with("| `")).filter_map(|row| row.split('|').nth(1));
    let listed: BTreeSet<String> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(String::from).collect();
    assert_eq!(listed, used);
}
