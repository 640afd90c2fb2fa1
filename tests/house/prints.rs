//! How lines are printed: not by the macros of the standard library, which panic where a stream is closed or its disk full, and one rank's
//! panic ends all. Held by reading the sources; tests are free.

use crate::creates::{count, sources, words};
use crate::package::Package;

/// The macros.
const WAYS: &[&str] = &["print !", "println !", "eprint !", "eprintln !", "dbg !"];

fn breaches(package: &Package) -> Vec<String> {
    let of = |file| {
        let text = words(file);
        let found = WAYS.iter().filter(move |way| count(&text, way) > 0);
        found.map(move |way| format!("{}: {way}", file.path))
    };
    sources(package).flat_map(of).collect()
}

#[test]
fn lines_are_printed_by_what_cannot_panic() {
    let found: Vec<String> = Package::all().iter().flat_map(breaches).collect();
    assert!(found.is_empty(), "print by screen::say or cli::output:\n{}", found.join("\n"));
}

#[test]
fn each_macro_is_found() {
    let found = |text: &str| breaches(&Package::new("trireme", vec![("src/train/step.rs".into(), text.into())]));
    for name in ["print", "println", "eprint", "eprintln", "dbg"] {
        assert_eq!(found(&format!("fn f() {{ {name}!(\"x\") }}")).len(), 1, "{name}");
    }
    assert_eq!(found("#[cfg(test)]\nmod tests;\nfn f() { println!() }").len(), 1);
    assert_eq!(
        found("fn f() { writeln!(out, \"println!\") }\n#[cfg(test)] mod tests { fn f() { println!() } }"),
        [""; 0]
    );
}
