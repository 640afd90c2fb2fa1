//! The kernels of codec.cu. A list of runs ends at element `end` of the bucket, at code `codes_end`, and names `tensors` tensors.

use super::kernel::kernels;
use crate::cuda::driver::slice::plain;

/// Words of a block of lanes.
pub const WORDS: usize = 64;

/// A part of a tensor: elements of the bucket from `from` on, its codes from `place` on, `first` elements of the tensor before it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Run {
    pub from: u64,
    pub place: u64,
    pub first: u64,
    pub len: u32,
    pub tensor: u32,
    pub parameter: u32,
    pub in_lanes: u32,
}

plain! { Run = "Run" }

kernels! {
    /// The largest |g| of each run, and sum and sum of squares unless `moments` is null; adds what is fed back before.
    codec_measure: CodecMeasure over threads(32 * count) given(end) {
        g: [f32; end],
        runs: [Run; count],
        count: u32,
        residual: (null or [f32; end]),
        largest: [u32; count],
        moments: (null or [f64; 2 * count]),
    }

    /// Fixed-point codes, added to those before where `add` is 1.
    codec_integers: CodecIntegers over blocks(count) given(end, codes_end, tensors) {
        g: [f32; end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        room: u32,
        add: u32,
        codes: [u32; codes_end],
    }

    /// Gradients from sums of fixed-point codes.
    codec_integers_back: CodecIntegersBack over blocks(count) given(end, codes_end, tensors) {
        codes: [i32; codes_end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        room: u32,
        g: [f32; end],
    }

    /// Codes in lanes of words, added to those before where `add` is 1.
    codec_lanes: CodecLanes over threads(count * WORDS) given(end, codes_end, tensors) {
        g: [f32; end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        bits: u32,
        per_word: u32,
        steps: u32,
        worker: u32,
        step: u32,
        seed: u64,
        op: u32,
        residual: (null or [f32; end]),
        add: u32,
        words: [u64; codes_end],
    }

    /// Gradients from sums of codes in lanes.
    codec_lanes_back: CodecLanesBack over threads(count * WORDS) given(end, codes_end, tensors) {
        words: [u64; codes_end],
        runs: [Run; count],
        count: u32,
        scales: [u32; tensors],
        bits: u32,
        per_word: u32,
        steps: u32,
        zero: i32,
        g: [f32; end],
    }

    /// Gradients as bf16.
    codec_halves: CodecHalves over threads(n) { g: [f32; n], n: u64, halves: [u16; n] }

    /// Rounds gradients with what is fed back, and keeps what that takes off.
    codec_halves_split: CodecHalvesSplit over threads(n) { g: [f32; n], n: u64, residual: [f32; n] }

    /// bf16 as gradients.
    codec_halves_back: CodecHalvesBack over threads(n) { halves: [u16; n], n: u64, g: [f32; n] }
}
