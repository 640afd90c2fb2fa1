//! cuBLASLt: its handle, and products of matrices.

pub mod product;
