//! Tests the loops over rows with different number types. For values that bf16 represents exactly, results in bf16 must
//! equal the rounded f32 results, and the sums must have the same bits. A plain loop checks which values ReLU passed.

use super::super::lanes::{LANES, Lanes};
use super::super::number::Number;
use super::rows::{self, Bits, Constants, DxCoefficients, RELU, RESIDUAL, Row, SECOND, STORES_BITS, STORES_GRADIENT};

/// Lengths with and without incomplete groups, with more groups than bits in a word, and shorter than a group.
const LENGTHS: [usize; 5] = [5, 64, 784, 33 * LANES + 7, 2 * 32 * LANES];

/// Channel groups per pixel. Pixels follow each other in memory, so the same channels repeat after this number.
const GROUPS: [usize; 2] = [1, 3];

/// Returns multiples of 1/8 from -4 to 4. They and the sums of two are exact in bf16.
fn values<T: Number>(n: usize, seed: usize) -> Vec<T> {
    (0..n).map(|i| T::from_f32(((i * 29 + seed * 7) % 65) as f32 / 8.0 - 4.0)).collect()
}

fn constants(groups: usize, of: fn(usize) -> f32) -> Vec<Lanes> {
    (0..groups).map(|group| std::array::from_fn(|lane| of(group * LANES + lane))).collect()
}

fn widened<T: Number>(values: &[T]) -> Vec<f32> {
    values.iter().map(|v| v.to_f32()).collect()
}

fn rounded<T: Number>(values: &[f32]) -> Vec<f32> {
    values.iter().map(|v| T::from_f32(*v).to_f32()).collect()
}

fn bits_of(sums: &[Lanes]) -> Vec<u32> {
    sums.as_flattened().iter().map(|v| v.to_bits()).collect()
}

/// The results of all passes over a row.
struct Passes {
    /// The two sums of [`rows::moments`], then the two sums of [`rows::reduce`].
    sums: [Vec<Lanes>; 4],
    y: Vec<f32>,
    bits: Vec<Bits>,
    g: Vec<f32>,
    dx: Vec<f32>,
    in_place: Vec<f32>,
}

/// Runs all passes over a row of `n` elements. `mode` is the mode of the forward pass, and `second` tells whether there
/// is a second gradient.
fn passes<X: Number, Y: Number>(n: usize, groups: usize, mode: usize, second: bool) -> Passes {
    let (x, residual, gradient, summand) = (values::<X>(n, 1), values::<Y>(n, 2), values::<Y>(n, 3), values::<Y>(n, 4));
    let (mean, scale, shift) = (
        constants(groups, |i| i as f32 / 64.0),
        constants(groups, |i| 0.5 + i as f32 / 32.0),
        constants(groups, |_| 0.3),
    );
    let mut sums: [Vec<Lanes>; 4] = std::array::from_fn(|_| vec![[0.0; LANES]; groups]);
    let [a, b, c, d] = &mut sums;
    rows::moments(&x, &mean, a, b);
    let (mut y, mut bits) = (vec![Y::from_f32(9.0); n], vec![!0; rows::words(n)]);
    let stores_bits = STORES_BITS * usize::from(mode == RELU | RESIDUAL);
    rows::normalise(mode + stores_bits, (&x, &residual), &scale, &shift, &mut y, &mut bits);
    let k = (0..groups).map(|i| Constants { mean: mean[i], scale: scale[i], shift: shift[i] });
    let (k, mut g) = (k.collect::<Vec<_>>(), gradient);
    let row = Row { x: &x, bits: &bits, second: if second { &summand } else { &[] }, constants: &k };
    let stores = STORES_GRADIENT * usize::from(mode & RESIDUAL == 0 && !second);
    let plain = g.clone();
    rows::reduce(mode + SECOND * usize::from(second) + stores, &row, &mut g, c, d);
    let coefficients: Vec<DxCoefficients> =
        (0..groups).map(|i| DxCoefficients { a: scale[i], b: shift[i], c: mean[i] }).collect();
    let mut dx = vec![X::from_f32(9.0); n];
    rows::input_gradient(&coefficients, &x, &g, &mut dx);
    let mut in_place = if second { g.clone() } else { plain };
    rows::input_gradient_in_place(if second { 0 } else { mode & RELU }, &coefficients, &row, &mut in_place);
    Passes { sums, y: widened(&y), bits, g: widened(&g), dx: widened(&dx), in_place: widened(&in_place) }
}

fn compare<X: Number, Y: Number>(what: &str) {
    for (n, groups) in LENGTHS.into_iter().flat_map(|n| GROUPS.map(|groups| (n, groups))) {
        for (mode, second) in [0, RELU, RESIDUAL, RELU | RESIDUAL].into_iter().flat_map(|m| [(m, false), (m, true)]) {
            let (want, got) = (passes::<f32, f32>(n, groups, mode, second), passes::<X, Y>(n, groups, mode, second));
            let what = format!("{what}, {n} in {groups} groups, mode {mode}, second summand {second}");
            assert_eq!(got.y, rounded::<Y>(&want.y), "{what}: y");
            assert_eq!(got.bits, want.bits, "{what}: bits");
            assert_eq!(got.g, rounded::<Y>(&want.g), "{what}: gradient behind ReLU");
            assert_eq!(got.dx, rounded::<X>(&want.dx), "{what}: dx");
            assert_eq!(got.in_place, rounded::<Y>(&want.in_place), "{what}: dx in place of dy");
            for (got, want) in got.sums.iter().zip(&want.sums) {
                assert_eq!(bits_of(got), bits_of(want), "{what}: sums");
            }
        }
    }
}

#[test]
fn bf16_passes_equal_f32_passes_rounded_once() {
    compare::<u16, u16>("all in bf16");
    compare::<u16, f32>("x in bf16");
    compare::<f32, u16>("y in bf16");
}

#[test]
fn backward_uses_the_relu_mask_of_forward() {
    for (n, groups) in LENGTHS.into_iter().flat_map(|n| GROUPS.map(|groups| (n, groups))) {
        let got = passes::<f32, f32>(n, groups, RELU | RESIDUAL, false);
        let (x, residual, dy) = (values::<f32>(n, 1), values::<f32>(n, 2), values::<f32>(n, 3));
        for i in 0..n {
            let scale = 0.5 + (i % (groups * LANES)) as f32 / 32.0;
            let v = x[i].mul_add(scale, 0.3) + residual[i];
            assert_eq!(got.y[i], v.max(0.0), "element {i} of {n} in {groups} groups");
            assert_eq!(got.g[i], if v > 0.0 { dy[i] } else { 0.0 }, "gradient {i} of {n} in {groups} groups");
        }
    }
}
