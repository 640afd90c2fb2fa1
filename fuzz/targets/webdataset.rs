//! Fuzzes WebDataset archives.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), 65 << 20, || data_tools::fuzzing::source(
    "webdataset",
    data
)));
