//! Small helpers that the other crates share: SIMD levels, bf16, the cores of this process, output on a terminal, the environment at the
//! start, and types that several crates use of which none depends on another.

pub mod bf16;
pub mod code_spec;
pub mod cores;
pub mod device_region;
pub mod environment;
pub mod run_state;
pub mod screen;
pub mod simd;
pub mod sync;
