//! cuDNN: its handle, and convolutions by its graph interface, channels last.

mod algorithm;
pub mod candidates;
pub mod choice;
pub mod convolution;
mod descriptor;
mod fastest;
pub mod handle;
#[cfg(test)]
mod tests;
mod trial;
