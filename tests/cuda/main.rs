//! The CUDA backend and runs on it: on this machine's GPU with TRIREME_TEST_GPU=1, else on the emulated one.

#[path = "../support/mod.rs"]
mod support;

mod algorithms;
mod backend;
mod codecs;
mod emulator;
mod f16;
mod failures;
mod handover;
mod profile;
mod recording;
mod norm_sums;
mod runs;
mod steps;
mod traffic;
mod transports;
