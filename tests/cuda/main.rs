//! Tests of the CUDA backend and of runs with it. They use this machine's GPU if `TRIREME_TEST_GPU=1`, otherwise the
//! emulated GPU.

mod ahead;
mod algorithms;
mod backend;
mod codecs;
mod emulator;
mod f16;
mod failures;
mod folds;
mod handover;
mod launches;
mod libraries;
mod mix;
mod multi_label;
mod norm_sums;
mod profile;
mod raw_gradients;
mod recording;
mod runs;
mod scripts;
mod shortcuts;
mod steps;
mod switches;
mod traffic;
mod transports;
