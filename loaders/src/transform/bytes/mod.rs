//! An image as planes of bytes, and what torchvision does to tensors of bytes: each operation gives its bytes.
//!
//! Operations of one value are tables of 256 bytes. Where torchvision computes in f32 with fused multiply-add, f64 is used and rounded
//! to f32, so that the bytes are the same on every processor.

mod filters;
mod image;
mod values;
mod warp;

pub(super) use filters::{blur, sharpness, shift_reflected};
pub(super) use image::ByteImage;
pub(super) use values::{
    add_to_sum, autocontrast, blend, brightness, contrast, equalize, fused, grayscale, grey, invert, nearest, one_if,
    posterize, rest, saturation, select, solarize, start_sum, take_sum, whole,
};
pub(super) use warp::{Affine, Edge, Grid, Quad, Sampling, affine, coefficients, rotate, warp};
