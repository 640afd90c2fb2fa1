//! trireme.
#![allow(missing_docs)]
pub mod backend; pub mod nn; pub mod models;
