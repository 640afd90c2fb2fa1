//! Fuzzes the HDF5 reader of model files and checkpoints with arbitrary bytes followed by the right checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod checkpoint;

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), 1 << 20, || checkpoint::h5(data)));
