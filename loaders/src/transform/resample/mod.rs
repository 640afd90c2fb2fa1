//! Antialiased resizing, like BILINEAR, BICUBIC and LANCZOS in PIL, or `interpolate(..., antialias=True)` in
//! torchvision. It resizes rows first, then columns, and then applies a factor and an offset per channel. This is done
//! row by row, so that only one intermediate row is stored.
//!
//! PIL rounds to bytes after each of its two passes. This code keeps fractions, so bilinear results differ from PIL's
//! by less than 1 of 255. Values that overshoot are clamped only at the end.
//!
//! The weights of rows are fixed-point numbers with 14 fraction bits that sum to exactly one, and the sums are integers.
//! Columns are summed in f32 in a fixed order without fused multiply-adds. So the results are bit-identical on every CPU.
//!
//! If values are not bytes, or an image has more than four channels, both passes compute in f32.

mod filter;
mod plane;
mod resampler;

pub(crate) use filter::{Filter, Span};
pub use plane::{Plane, PlaneResizer};
pub(crate) use resampler::{AxisRequest, Mirror, Planes, Resampler, ResizeRequest, Rows};
