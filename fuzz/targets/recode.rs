//! The conversion of image files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_tools::fuzzing::recode(data));
