//! What source files are read with: streams, archives, folders, and the formats of single files.

pub(super) mod annotations;
pub(super) mod archive;
pub(super) mod budget;
pub(super) mod classes;
pub(super) mod devkit;
pub(super) mod files;
pub(super) mod folders;
pub(super) mod groups;
pub(super) mod idx;
pub(super) mod input;
pub(super) mod label_json;
pub(super) mod labelled;
pub(super) mod labels;
pub(super) mod listing;
pub(super) mod matlab;
pub(super) mod names;
pub(super) mod npy;
pub(super) mod parquet;
pub(super) mod positioned;
pub(super) mod recordio;
pub(super) mod row_groups;
pub(super) mod splits;
pub(super) mod table;
pub(super) mod tar_index;
pub(super) mod tar_samples;
