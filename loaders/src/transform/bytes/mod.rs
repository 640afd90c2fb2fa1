//! An image as planes of bytes, and torchvision's operations on byte tensors. Each operation returns exactly the bytes
//! that torchvision returns. Operations that also work on float planes do not round.
//!
//! Operations on single values use tables of 256 bytes. Where torchvision computes in f32 with fused multiply-add, this
//! code computes in f64 and rounds to f32, so that the bytes are equal on every CPU.

mod filters;
mod image;
mod values;
mod warp;

pub(super) use filters::{blur, sharpness, shift_reflected};
pub(super) use image::{ByteImage, Planes, nearest, select};
pub(super) use values::{
    add_to_sum, autocontrast, blend, brightness, contrast, equalize, fused, grayscale, grey, invert, one_if, posterize,
    rest, saturation, solarize, start_sum, take_sum, whole,
};
pub(super) use warp::{Affine, Edge, Grid, Quad, Sampling, coefficients, rotation, warp};
