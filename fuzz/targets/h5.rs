//! The HDF5 reader of model files and checkpoints: any bytes, with the right checksum behind them.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod checkpoint;

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), 1 << 20, || checkpoint::h5(data)));
