//! No two files of one package name items of each other, directly or through others.
//!
//! A file depends on the files that define what it names. A re-export is no dependency by itself: a file that only declares modules and
//! re-exports their items takes no part in any circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::package::Package;
use crate::syntax::{How, Mention};

/// For each file, the files that it depends on, each with a path that it names.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// The dependencies between the files of a package. What stands below `#[cfg(test)]` may name anything.
fn graph(package: &Package) -> Graph {
    let mut graph = Graph::new();
    for file in &package.files {
        let needed = graph.entry(file.path.clone()).or_default();
        for mention in file.mentions.iter().filter(|m| !m.test && is_use(m)) {
            for other in package.definers(mention).filter(|other| other.path != file.path) {
                needed.entry(other.path.clone()).or_insert_with(|| mention.path.join("::"));
            }
        }
    }
    graph
}

/// A re-export offers an item and does not use it.
fn is_use(mention: &Mention) -> bool {
    !matches!(mention.how, How::Import { public: true, .. })
}

/// The shortest way from a file back to itself.
fn circle(graph: &Graph, start: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for next in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let mut found = vec![file];
                while *found.last()? != start {
                    found.push(before.get(found.last()?)?);
                }
                return Some(found.into_iter().rev().map(String::from).collect());
            }
            if !before.contains_key(next.as_str()) {
                before.insert(next, file);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Files that lead to each other, in groups of more than one.
fn knots(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let reach = |start: &str| {
        let (mut found, mut open) = (BTreeSet::new(), vec![start.to_string()]);
        while let Some(file) = open.pop() {
            for next in graph.get(&file).into_iter().flat_map(BTreeMap::keys) {
                if found.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        found
    };
    let reached: BTreeMap<&str, BTreeSet<String>> = graph.keys().map(|file| (file.as_str(), reach(file))).collect();
    let mut done = BTreeSet::new();
    let mut knots = Vec::new();
    for &file in reached.keys() {
        let both = |other: &&str| reached[file].contains(*other) && reached[*other].contains(file);
        let knot: BTreeSet<&str> = reached.keys().copied().filter(both).collect();
        if !knot.is_empty() && done.insert(file) {
            done.extend(&knot);
            knots.push(knot);
        }
    }
    knots
}

/// Each knot, with one shortest circle in it: `a.rs -> b.rs (path) -> a.rs (path)`.
fn describe(graph: &Graph) -> Vec<String> {
    let mut lines = Vec::new();
    for knot in knots(graph) {
        let circles = knot.iter().filter_map(|file| circle(graph, file));
        let Some(shortest) = circles.min_by_key(Vec::len) else { continue };
        let mut line = format!("{} files: {}", knot.len(), shortest[0]);
        for (i, file) in shortest.iter().enumerate() {
            let next = &shortest[(i + 1) % shortest.len()];
            line += &format!(" -> {next} ({})", graph[file][next]);
        }
        lines.push(line);
        lines.push(format!("    all: {}", knot.into_iter().collect::<Vec<_>>().join(" ")));
    }
    lines
}

#[test]
fn no_files_depend_on_each_other_in_a_circle() {
    let found: Vec<String> = Package::all().iter().flat_map(|package| describe(&graph(package))).collect();
    assert!(found.is_empty(), "files that depend on each other:\n{}", found.join("\n"));
}

/// The dependencies in a made-up package.
fn graph_of(files: &[(&str, &str)]) -> Graph {
    let files = files.iter().map(|(path, text)| (path.to_string(), text.to_string()));
    graph(&Package::new("trireme", files.collect()))
}

fn knots_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    knots(&graph_of(files)).into_iter().map(|knot| knot.into_iter().map(String::from).collect()).collect()
}

#[track_caller]
fn assert_circle(files: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(knots_of(files), [expected], "{files:#?}");
}

#[track_caller]
fn assert_none(files: &[(&str, &str)]) {
    assert_eq!(knots_of(files), [[""; 0]; 0], "{files:#?}");
}

#[test]
fn circles_are_found_however_they_are_written() {
    let a = "src/a.rs";
    let b = "src/b.rs";
    for (first, second) in [
        ("use crate::b::B; pub struct A;", "use crate::a::A; pub struct B;"),
        ("use super::b::B; pub struct A;", "pub struct B; fn f() { crate::a::A; }"),
        ("use crate::{b::{self, B}}; pub struct A;", "pub struct B(Vec<crate::a::A>);"),
        ("use crate::b as other; pub struct A; fn f(_: other::B) {}", "pub enum B { C(super::a::A) }"),
        ("use crate::b::*; pub struct A(B);", "use trireme::a::A; pub struct B;"),
        ("pub struct A; mod tests { use super::super::b::B; }", "use crate::a::A; pub struct B;"),
        ("pub fn a() { crate::b::b() }", "pub fn b() { crate::a::a() }"),
        ("pub const A: u8 = crate::b::B;", "pub static B: u8 = crate::a::A;"),
        ("pub fn a<T>() { crate::b::b::<T>() }", "pub fn b<T>() { crate::a::a::<T>() }"),
        ("pub use crate::b::B; pub struct A(B);", "use crate::a::A; pub struct B;"),
        ("pub struct A; impl crate::b::B for A {}", "pub trait B { fn f(a: crate::a::A); }"),
        ("macro_rules! m { () => { $crate::b::B } } pub(crate) use m;", "pub struct B; fn f() { crate::a::m!() }"),
    ] {
        assert_circle(&[("src/lib.rs", "mod a; mod b;"), (a, first), (b, second)], &[a, b]);
    }
}

#[test]
fn re_exports_lead_to_the_file_that_defines() {
    let root = ("src/lib.rs", "pub mod net;");
    let user = ("src/net/user.rs", "use super::Graph; pub struct User;");
    let graph = ("src/net/graph.rs", "pub struct Graph;");
    let needs = ("src/net/graph.rs", "use super::User; pub struct Graph;");
    // a file that only re-exports is in no circle, and hides none
    let mere = ("src/net/mod.rs", "mod graph; mod user; pub use graph::Graph; pub use user::User;");
    assert_none(&[root, mere, user, graph]);
    assert_circle(&[root, mere, user, needs], &["src/net/graph.rs", "src/net/user.rs"]);
    let globs = ("src/net/mod.rs", "mod graph; mod user; pub use graph::*; pub use user::*;");
    assert_circle(&[root, globs, user, needs], &["src/net/graph.rs", "src/net/user.rs"]);
    let renamed = ("src/net/graph.rs", "use super::Person; pub struct Graph;");
    let renames = ("src/net/mod.rs", "mod graph; mod user; pub use graph::Graph; pub use user::User as Person;");
    assert_circle(&[root, renames, user, renamed], &["src/net/graph.rs", "src/net/user.rs"]);
    // one that also defines what its child needs, or uses what its child defines, is a file like any other
    let defines = ("src/net/mod.rs", "mod graph; mod user; pub use user::User; pub struct Graph;");
    assert_none(&[root, defines, user]);
    let uses = ("src/net/mod.rs", "mod graph; mod user; pub use user::User; pub struct Graph(User);");
    assert_circle(&[root, uses, user], &["src/net/mod.rs", "src/net/user.rs"]);
}

#[test]
fn longer_circles_are_one_knot_and_the_shortest_is_told() {
    let files = [
        ("src/lib.rs", "mod a; mod b; mod c; mod d;"),
        ("src/a.rs", "pub struct A(crate::b::B);"),
        ("src/b.rs", "pub struct B(crate::c::C);"),
        ("src/c.rs", "pub struct C(crate::a::A, crate::d::D);"),
        ("src/d.rs", "pub struct D(crate::c::C);"),
    ];
    assert_circle(&files, &["src/a.rs", "src/b.rs", "src/c.rs", "src/d.rs"]);
    let lines = describe(&graph_of(&files));
    assert_eq!(lines[0], "4 files: src/c.rs -> src/d.rs (crate::d::D) -> src/c.rs (crate::c::C)");
}

#[test]
fn what_is_no_circle_is_none() {
    let lib = ("src/lib.rs", "mod a; mod b; pub use a::A; pub use b::B;");
    for (first, second) in [
        ("use crate::b::B;", "pub struct B;"),
        // comments, strings, other crates, fields and locals of one name
        ("use crate::b::B; pub struct A;", "// use crate::a::A;\npub struct B; const S: &str = \"crate::a::A\";"),
        ("use crate::b::B; pub struct A;", "use ::a::A; pub struct B;"),
        ("use crate::b::B; pub struct A;", "pub struct B { a: u8 } fn f(b: B) -> u8 { b.a }"),
        ("use crate::b::B; pub struct A;", "use std::a::A; pub struct B;"),
        // a module's name alone says nothing of what is used
        ("use crate::b::B; pub struct A;", "use crate::a; pub struct B;"),
        // a type of its own hides the other
        ("use crate::b::B; pub struct A;", "pub struct B; mod inner { pub struct A; fn f() -> A {} }"),
        // tests
        ("use crate::b::B; pub struct A;", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; fn f() { A; } }"),
        ("use crate::b::B; pub struct A;", "pub struct B; #[cfg(test)] use crate::a::A; fn f() {}"),
    ] {
        assert_none(&[lib, ("src/a.rs", first), ("src/b.rs", second)]);
    }
    // tests in a file of their own
    let tests = ("src/a/tests.rs", "use super::*; pub fn help() { A; }");
    assert_none(&[
        ("src/lib.rs", "mod a;"),
        ("src/a/mod.rs", "pub struct A; #[cfg(test)] mod tests; fn f() { tests::help() }"),
        tests,
    ]);
    // a function and a module of one name
    let lib = ("src/lib.rs", "mod a; mod open; pub use open::open;");
    assert_none(&[lib, ("src/a.rs", "pub fn f() { crate::open() }"), ("src/open.rs", "pub fn open() {}")]);
    assert_none(&[("src/lib.rs", "pub mod cli;"), ("src/main.rs", "use trireme::cli;"), ("src/cli.rs", "")]);
}
