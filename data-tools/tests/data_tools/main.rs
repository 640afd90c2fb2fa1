//! The tests of the package in one program: each module is about one command or one kind of source.

mod bad_output;
mod bad_source;
mod boxes;
mod common;
mod convert;
mod copies;
mod entry_points;
mod extract;
mod fifo;
mod folder;
mod foreign;
mod hostile;
mod imagenet;
mod images;
mod index;
mod labels;
mod links;
mod multi_label;
mod odd;
mod reshape;
mod resume;
mod show;
mod sources;
mod tables;
mod tfrecords;
mod verify;
