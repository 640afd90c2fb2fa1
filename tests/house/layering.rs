//! Who may import whom, held by reading the sources: the arrows between the packages and between their modules, the one place of each
//! foreign library, and where `unsafe` may stand.
//!
//! What counts is paths: `use` trees and paths in expressions alike, `super` and `self` resolved. Comments and strings do not count.

use std::fs;
use std::path::Path;

use crate::arrows::ARROWS;
use crate::package::Package;
use crate::syntax::{File, How, Mention, absolute};

/// For each package, the packages of ours that it may name.
const PACKAGES: &[(&str, &[&str])] =
    &[("loaders", &[]), ("data_tools", &["loaders"]), ("trireme", &["loaders", "data_tools"])];

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
    "loaders/src/channels.rs",
    "loaders/src/decode/jpeg/",
    "loaders/src/file/write_back.rs",
    "loaders/src/ring/open_batch.rs",
    "loaders/src/ring/piece.rs",
    "loaders/src/storage/mapping.rs",
    "loaders/src/storage/sigbus/handler.rs",
    "loaders/src/transform/resample/mix.rs",
    "loaders/src/transform/resample/plane.rs",
    "loaders/src/transform/rgb.rs",
    "src/backend/cpu/",
    "src/backend/cuda/",
    "src/comm/sys/",
    "src/device_region.rs",
    "src/simd.rs",
];

/// Outside of `backend`, the files that may name a concrete backend.
const CONCRETE: &[&str] = &["src/launch.rs", "src/doctor.rs"];

/// Every breach of the rules in a package, as `file: what`.
fn breaches(package: &Package) -> Vec<String> {
    let of_file = |file| breaches_of(package, file).into_iter().map(|what| format!("{}: {what}", file.path));
    package.files.iter().flat_map(of_file).collect()
}

fn breaches_of(package: &Package, file: &File) -> Vec<String> {
    let below = |places: &[&str]| places.iter().any(|place| file.path.starts_with(place));
    let named: Vec<&Mention> = file.mentions.iter().filter(|m| m.how != How::Word).collect();
    let mut found: Vec<String> = named.iter().filter_map(|m| package_breach(package, m)).collect();
    found.extend(arrow_breaches(package, file, &named));
    let text = |mention: &Mention| mention.path.join("::");
    for (name, folder) in FOREIGN {
        let names = named.iter().find(|m| first(m) == *name);
        let main = file.path == "src/main.rs" && *name == "clap";
        found.extend(
            names.filter(|_| !below(&[folder]) && !main).map(|m| format!("{}: only {folder} names {name}", text(m))),
        );
    }
    let onednn = file.tokens.iter().find(|t| ONEDNN.0.iter().any(|start| t.text.starts_with(start)));
    found.extend(onednn.filter(|_| !below(&[ONEDNN.1])).map(|t| format!("{}: only {} names oneDNN", t.text, ONEDNN.1)));
    if file.tokens.iter().any(|t| t.text == "unsafe") && !below(UNSAFE) {
        found.push("unsafe".into());
    }
    let free = !file.path.starts_with("src/") || file.path.starts_with("src/backend/") || below(CONCRETE);
    let concrete = named.iter().find(|m| !m.test && is_concrete(m));
    found.extend(concrete.filter(|_| !free).map(|m| format!("{}: a concrete backend", text(m))));
    found
}

/// The first name of a path, the crate's if it is another's.
fn first(mention: &Mention) -> &str {
    mention.path.iter().find(|part| *part != "::").map_or("", String::as_str)
}

fn is_concrete(mention: &Mention) -> bool {
    absolute(mention).is_some_and(|path| {
        path.first().is_some_and(|first| first == "backend")
            && path.get(1).is_some_and(|second| ["cpu", "cuda", "reference"].contains(&second.as_str()))
    })
}

fn package_breach(package: &Package, mention: &Mention) -> Option<String> {
    let (_, allowed) = PACKAGES.iter().find(|(name, _)| *name == package.name)?;
    let other = PACKAGES.iter().any(|(name, _)| *name == first(mention) && *name != package.name);
    let breach = other && !allowed.contains(&first(mention));
    breach.then(|| format!("{}: {} may name {allowed:?}", mention.path.join("::"), package.name))
}

/// A module's name in [`ARROWS`].
fn name(package: &Package, module: &[String]) -> String {
    let package = if package.name == "trireme" { None } else { Some(package.name.clone()) };
    package.into_iter().chain(module.iter().cloned()).collect::<Vec<_>>().join("::")
}

/// Whether a path is `place` or below it.
fn within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The line of [`ARROWS`] that a path goes by.
fn rule(path: &str) -> Option<&'static (&'static str, &'static [&'static str])> {
    ARROWS.iter().filter(|(place, _)| within(path, place)).max_by_key(|(place, _)| place.len())
}

/// Whether `allowed` leaves out the line `other` below it: within one module `a` means only what has no line of its own.
fn is_apart(place: &str, allowed: &str, other: &str) -> bool {
    let top = |path: &str| path.split("::").next().map(String::from);
    top(place) == top(allowed) && other.len() > allowed.len()
}

/// What a file names outside of its own line of [`ARROWS`], and may not: neither where it names it nor where that is defined.
fn arrow_breaches(package: &Package, file: &File, named: &[&Mention]) -> Vec<String> {
    if file.module.is_empty() {
        return Vec::new();
    }
    let own = name(package, &file.module);
    let Some((place, allowed)) = rule(&own) else {
        return vec![format!("module {own} has no place in the design")];
    };
    let may = |path: &str| {
        let Some((other, _)) = rule(path) else { return true };
        other == place || allowed.iter().any(|allowed| within(path, allowed) && !is_apart(place, allowed, other))
    };
    let written = |mention: &Mention| match absolute(mention) {
        Some(path) => Some(name(package, &path)),
        None if first(mention) == package.name => Some(name(package, &mention.path[1..])),
        None => None,
    };
    let breach = |mention: &&&Mention| {
        written(mention).is_some_and(|path| {
            let oracle = mention.test && within(&path, "backend::reference");
            !oracle && !may(&path) && !package.definers(mention).any(|other| may(&name(package, &other.module)))
        })
    };
    let bad = named.iter().filter(breach);
    bad.map(|m| format!("{}: {place} may name {allowed:?}", m.path.join("::"))).collect()
}

#[test]
fn every_source_keeps_to_the_rules() {
    let packages = Package::all();
    let found: Vec<String> = packages.iter().flat_map(breaches).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let modules: Vec<String> =
        packages.iter().flat_map(|package| package.files.iter().map(|file| name(package, &file.module))).collect();
    let unused = |place: &&str| !modules.iter().any(|module| within(module, place));
    let stale: Vec<&str> = ARROWS.iter().map(|(place, _)| *place).filter(unused).collect();
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

/// The breaches of a made-up file.
fn breaches_in(path: &str, text: &str) -> Vec<String> {
    let name = match path.split('/').next() {
        Some("loaders") => "loaders",
        Some("data-tools") => "data_tools",
        _ => "trireme",
    };
    breaches(&Package::new(name, vec![(path.into(), text.into())]))
}

#[track_caller]
fn assert_breach(path: &str, text: &str, expected: &str) {
    let found = breaches_in(path, text);
    assert!(found.iter().any(|what| what.contains(expected)), "no \"{expected}\" in {found:?} of {path}:\n{text}");
}

#[track_caller]
fn assert_clean(path: &str, text: &str) {
    let found = breaches_in(path, text);
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
    assert_breach("loaders/src/order/mod.rs", "use crate::ring::Loader;", "loaders::order may name [\"loaders\"]");
    assert_breach("loaders/src/order/mod.rs", "use super::ring::Loader;", "loaders::order may name [\"loaders\"]");
    assert_breach("loaders/src/error.rs", "use crate::format::record;", "loaders may name []");
    assert_breach("loaders/src/order.rs", "use trireme::comm::Comm;", "loaders may name []");
    assert_breach("loaders/src/order.rs", "use data_tools::info;", "loaders may name []");
    assert_breach("data-tools/src/info.rs", "fn f() { trireme::cli::run() }", "trireme::cli::run");
    assert_breach("src/train/step.rs", "use mpi::ffi;", "only src/comm/ names mpi");
    assert_breach("src/train/step.rs", "use ::mpi::traits::*;", "only src/comm/ names mpi");
    assert_breach("src/train/output.rs", "let f = hdf5_metno::File::create(p);", "only src/checkpoint/");
    assert_breach("src/train/bench.rs", "let v = dnnl_version();", "only src/backend/cpu/ names oneDNN");
    assert_breach("src/nn/memory.rs", "fn f() { unsafe { g() } }", "unsafe");
    assert_breach("src/comm/thread.rs", "unsafe impl Send for X {}", "unsafe");
    for (path, text, expected) in [
        ("src/train/plan/build.rs", "use crate::comm::Comm;", "crate::comm::Comm: train::plan may name"),
        ("src/train/observe/trace.rs", "use super::super::plan::Run;", "train::observe may name"),
        ("src/train/observe/trace.rs", "use crate::train::Run;", "train::observe may name"),
        ("src/train/reduce/host.rs", "use crate::train::save::Saver;", "train::reduce may name"),
        ("src/train/save/saver.rs", "use crate::train::step::Step;", "train::save may name"),
        ("src/backend/cpu/mod.rs", "use super::cuda::Cuda;", "backend::cpu may name"),
        ("src/backend/op/mod.rs", "use crate::backend::reference::Reference;", "backend::op may name"),
    ] {
        assert_breach(path, text, expected);
    }
    for text in ["use crate::backend::cpu::Cpu;", "use crate::backend::{self, reference::Reference};"] {
        assert_breach("src/train/step.rs", text, "a concrete backend");
    }
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
    assert_clean("loaders/src/order/mod.rs", "use crate::error::Error;\nuse crate::order::window;\nuse super::random;");
    assert_clean("loaders/src/lib.rs", "mod order; pub use order::Order; use ring::Loader;");
    assert_clean("src/models/vgg.rs", "use crate::nn::spec::{Conv, NetSpec};");
    assert_clean("src/main.rs", "use trireme::cli::{self, exit};\nuse trireme::comm;\nuse clap::Parser;");
    assert_clean("src/launch.rs", "use crate::backend::cpu::Cpu;");
    assert_clean("src/nn/graph.rs", "#[cfg(test)]\nmod tests { use crate::backend::reference::Reference; }");
    assert_clean("src/train/save/saver.rs", "use crate::train::reduce::Reduce;\nuse crate::train::plan::Run;");
    assert_clean("src/eval/mod.rs", "use crate::train::{agree::Session, observe::Stop};");
    assert_clean("src/backend/cpu/mod.rs", "#[cfg(test)]\nmod tests { use crate::backend::reference::Reference; }");
    assert_clean("src/backend/cpu/mod.rs", "use crate::backend::{Buffer, op::Shape};");
    assert_clean("src/comm/sys/", "use mpi::ffi;\nunsafe fn f() {}");
    assert_clean("src/backend/cpu/onednn.rs", "fn f() { unsafe { dnnl_version() }; }");
    assert_clean("data-tools/src/info.rs", "use loaders::{Dataset, shard::{self, Shard}};");
    assert_clean("src/cli/data.rs", "use data_tools::ConvertOptions;\nfn f() { loaders::sigbus::install(); }");
}
