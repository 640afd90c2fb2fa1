//! cuBLASLt: its handle and descriptors, and products of matrices.

mod algorithm;
mod descriptor;
pub mod handle;
pub mod product;
