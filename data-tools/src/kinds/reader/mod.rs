//! What source files are read with: streams, archives, and the formats that several kinds share.

pub(super) mod archive;
pub(super) mod classes;
pub(super) mod devkit;
pub(super) mod idx;
pub(crate) mod input;
pub(super) mod listing;
pub(super) mod matlab;
pub(super) mod names;
pub(super) mod tar_index;
