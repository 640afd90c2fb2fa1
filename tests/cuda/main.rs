//! The CUDA backend and runs on it: on this machine's GPU with TRIREME_TEST_GPU=1, else on the emulated one.

#[path = "../support/mod.rs"]
mod support;

mod algorithms;
mod backend;
mod codecs;
mod emulator;
mod f16;
mod libraries;
mod runs;
mod scripts;
mod steps;
mod switches;
mod transports;
