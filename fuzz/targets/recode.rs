//! Fuzzes the recoding of image files when a data set is converted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trireme_fuzz::MEMORY;

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), MEMORY, || data_tools::fuzzing::recode(data)));
