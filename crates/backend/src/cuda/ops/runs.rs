//! A bucket of gradients cut into runs, as the codecs' kernels go through it.

use std::ops::Range;

use base::code_spec::{CodedTensor, IntegerCodes};

use crate::cuda::kernels::codec::Run;

/// Elements of a run of fixed-point codes.
const RUN: usize = 4096;

/// Runs of one sort: of fixed-point codes, or of codes in lanes.
#[derive(Default)]
pub struct Runs {
    pub list: Vec<Run>,
    /// Tensor of each run.
    pub tensors: Vec<usize>,
    /// Fixed-point codes, or words of lanes.
    pub codes: usize,
    /// Elements that the bucket must hold.
    pub end: usize,
}

impl Runs {
    /// Those of fixed-point codes.
    pub fn of_integers(whole: &IntegerCodes) -> Self {
        Self::new(whole, false, RUN, 1)
    }

    /// Those of codes in lanes.
    pub fn of_lanes(whole: &IntegerCodes) -> Self {
        Self::new(whole, true, whole.block * whole.per_word, whole.per_word)
    }

    /// Runs of `run` elements, of which `each` share a code word.
    fn new(whole: &IntegerCodes, in_lanes: bool, run: usize, each: usize) -> Self {
        let mut runs = Self::default();
        for (tensor, part) in whole.parts.iter().enumerate().filter(|(_, p)| p.in_lanes == in_lanes) {
            for first in (0..part.range.len()).step_by(run) {
                runs.push(tensor, part, first..(first + run).min(part.range.len()), each);
            }
            runs.codes += part.range.len().div_ceil(each);
            runs.end = runs.end.max(part.range.end);
        }
        runs
    }

    fn push(&mut self, tensor: usize, part: &CodedTensor, of: Range<usize>, each: usize) {
        self.list.push(Run {
            from: (part.range.start + of.start) as u64,
            place: (self.codes + of.start / each) as u64,
            first: of.start as u64,
            len: of.len() as u32,
            tensor: tensor as u32,
            parameter: u32::from(part.parameter),
            in_lanes: u32::from(part.in_lanes),
        });
        self.tensors.push(tensor);
    }
}
