//! Whole runs of the real binary, most of them under `mpirun`, and the files that they write.

#[path = "../support/mod.rs"]
mod support;

mod averaging;
mod checkpoint;
mod classes;
mod complete;
mod distill;
mod evaluation;
mod export;
mod extend;
mod family;
mod find_lr;
mod folder;
mod import;
mod init;
mod laws;
mod limits;
mod loading;
mod log;
mod losses;
mod many;
mod missing;
mod mix;
mod multi_label;
mod networks;
mod optimizers;
mod predict;
mod recipes;
mod regions;
mod remote;
mod resume;
mod sam;
mod scores;
mod seeing;
mod sizes;
mod stop;
mod sweep;
mod sync;
mod tables;
mod terminal;
mod together;
mod uneven;
mod varied;
mod views;
mod whiten;
