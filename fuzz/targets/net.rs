//! Fuzzes network definitions: arbitrary text as a TOML file, arbitrary bytes as an ONNX file. A valid network is
//! written as TOML and read again. This must succeed, and a TOML network must be unchanged.
#![no_main]

use std::path::Path;

use formats::interop::onnx;
use libfuzzer_sys::fuzz_target;
use net::net_toml::{Classes, Definition, write};

/// A graph can compute weights with 640 MiB (`ROOM` in `onnx/build.rs`), and layers may need a second copy of them.
const MEMORY: usize = 1300 << 20;

fuzz_target!(|bytes: &[u8]| trireme_fuzz::read(bytes.len(), MEMORY, || {
    if let Ok(text) = std::str::from_utf8(bytes) {
        of_toml(text);
    }
    of_onnx(bytes);
}));

fn of_toml(text: &str) {
    let Ok(read) = Definition::read(text, "net.toml") else { return };
    let Ok(net) = read.build("net", read.input, read.classes) else { return };
    let written = write(&net, read.classes, Classes::Number);
    let again = Definition::read(&written, "written").and_then(|read| read.build("net", read.input, read.classes));
    assert_eq!(again, Ok(net), "{written}");
}

fn of_onnx(bytes: &[u8]) {
    let Ok(survey) = onnx::of_bytes(bytes, Path::new("net.onnx")) else { return };
    assert!(survey.unsupported.len() + survey.behind <= survey.nodes + 1);
    let Ok(network) = survey.network() else { return };
    let tensors = network.net.tensors().expect("a valid network");
    assert!(network.tensors.len() >= tensors.parameters.len());
    let written = write(&network.net, network.classes, Classes::Number);
    let read = Definition::read(&written, "written").unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert!(read.build("net", network.net.input, network.classes).is_ok(), "{written}");
}
