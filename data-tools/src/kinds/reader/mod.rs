//! Helpers for reading sources: streams, archives, folders, and the formats of single files.

pub(super) mod archive;
pub(super) mod arrays;
pub(super) mod devkit;
pub(super) mod files;
pub(super) mod folders;
pub(super) mod input;
pub(super) mod labelled;
pub(super) mod labels;
pub(super) mod lines;
pub(super) mod names;
pub(super) mod parquet;
mod parquet_pages;
pub(super) mod recordio;
pub(super) mod table;
