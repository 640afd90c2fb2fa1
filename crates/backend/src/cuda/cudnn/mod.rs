//! cuDNN: its handle, and convolutions with its graph API, channels last.

pub mod candidates;
pub mod choice;
pub mod convolution;
pub mod descriptor;
pub mod fastest;
#[cfg(test)]
mod tests;
