//! What source files are read with: streams, archives, folders, and the formats of single files.

pub(super) mod archive;
pub(super) mod budget;
pub(super) mod classes;
pub(super) mod devkit;
pub(super) mod files;
pub(super) mod folders;
pub(super) mod groups;
pub(super) mod idx;
pub(super) mod input;
pub(super) mod listing;
pub(super) mod matlab;
pub(super) mod names;
pub(super) mod tar_index;
