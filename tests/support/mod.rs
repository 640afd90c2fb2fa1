//! What several test binaries share. Each binary compiles it and uses a part of it. No expectations of its own.

#![allow(dead_code, unused_imports, unused_macros)] // each test binary uses a part

pub mod case;
pub mod disk;
pub mod emulator;
pub mod formula;
pub mod gpu;
pub mod images;
pub mod numerics;
pub mod program;
pub mod remote;
pub mod rounding;
pub mod setting;
pub mod small_run;
pub mod terminal;
pub mod weights;
