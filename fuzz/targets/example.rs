//! Fuzzes the tf.Example parser with arbitrary payloads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loaders::example::{encode, parse};

fuzz_target!(|data: &[u8]| {
    trireme_fuzz::read(data.len(), 1 << 20, || {
        if let Ok(example) = parse(data) {
            let mut written = Vec::new();
            encode(&example, &mut written);
            assert_eq!(parse(&written), Ok(example));
        }
    })
});
