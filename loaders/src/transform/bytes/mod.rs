//! An image as planes of bytes, and what torchvision does to tensors of bytes: each operation gives its bytes.
//!
//! Operations of one value are tables of 256 bytes. Where torchvision computes in f32 with fused multiply-add, f64 is used and rounded
//! to f32, so that the bytes are the same on every processor.

mod arithmetic;
mod blur;
mod equalize;
mod grid;
mod image;
mod lookup;
mod matrix;
mod quad;
mod reflect;
mod saturation;
mod sharpness;
mod sum;
mod warp;

pub(super) use arithmetic::{blend, fused, grey, nearest, one_if, rest, select, whole};
pub(super) use blur::blur;
pub(super) use equalize::equalize;
pub(super) use grid::Grid;
pub(super) use image::ByteImage;
pub(super) use lookup::{autocontrast, brightness, contrast, invert, posterize, solarize};
pub(super) use matrix::Affine;
pub(super) use quad::{Quad, coefficients};
pub(super) use reflect::shift_reflected;
pub(super) use saturation::{grayscale, saturation};
pub(super) use sharpness::sharpness;
pub(super) use sum::{add_to_sum, start_sum, take_sum};
pub(super) use warp::{Edge, Sampling, affine, rotate, warp};
