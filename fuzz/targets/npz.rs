//! Arrays of NumPy, deflated or not.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Twice the limit: where memory grows, the sanitizer moves it, and the old place is there still.
const MEMORY: usize = 65 << 20;

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), MEMORY, || data_tools::fuzzing::npz(data)));
