//! The CUDA backend and runs on it: on this machine's GPU with TRIREME_TEST_GPU=1, else on the emulated one.

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
