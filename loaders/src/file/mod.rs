//! Opens files safely, and writes files atomically.

pub mod overwrite;
pub(crate) mod private;
pub mod regular;
pub mod replace;
pub mod safe_create;
pub mod write_back;
