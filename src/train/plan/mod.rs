//! From a request to a planned run, without a word to other ranks.

pub mod prepare;
