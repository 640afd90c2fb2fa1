//! What a pass from one side to the other is given; how it runs is in `passes`, and in `folded`.

use super::outputs::Finish;
use super::transform::Side;
use crate::TensorDesc;

/// A pass from one side to the other: x to y, or dy to dx.
pub struct Convolution<'a> {
    pub from: Side<'a>,
    pub to: TensorDesc,
    pub filters: &'a [f32],
    pub strip: usize,
    pub finish: Finish<'a>,
}
