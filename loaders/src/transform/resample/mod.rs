//! Resizing, antialiased: what PIL calls BILINEAR, BICUBIC and LANCZOS and torchvision `interpolate(..., antialias=True)`. Rows first,
//! then columns, then a factor and an offset per channel, row by row, so that only one row is held in between.
//!
//! PIL rounds to bytes after each of its two passes; here the values stay fractions, so they are within 1 of PIL's (of 255) where the
//! filter is bilinear. What overshoots is cut at the end alone.
//! Weights of rows are in fixed point with 14 bits that sum to one exactly, and their sums are integers; columns are summed in f32 in a
//! fixed order without fused multiply-adds: the bits are the same on every processor.

mod filter;
mod plane;
mod resampler;

pub(crate) use filter::{Filter, Span};
pub use plane::{Plane, PlaneResizer};
pub(crate) use resampler::{Cut, Mirror, Planes, Resampler, Rows};
