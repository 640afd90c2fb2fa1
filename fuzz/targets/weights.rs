//! Fuzzes weight files from other programs: both PyTorch formats and safetensors.
#![no_main]

use std::path::PathBuf;

use formats::interop;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // libhdf5 and ONNX graphs have separate targets
    if bytes.starts_with(b"\x89HDF") || bytes.first() == Some(&8) {
        return;
    }
    let path: PathBuf = std::env::temp_dir().join(format!("trireme-fuzz-{}", std::process::id()));
    if std::fs::write(&path, bytes).is_err() {
        return;
    }
    trireme_fuzz::read(bytes.len(), 512 << 20, || {
        let Ok(weights) = interop::read(&path, None) else { return };
        for (name, shape, values) in &weights.tensors {
            assert_eq!(shape.iter().product::<usize>(), values.len(), "{name}");
        }
    });
});
