//! Compares the products with plain loops in f64 for different sizes, and checks that any number of threads computes
//! the same bits.

use net::Shape;

use super::super::layout::Format;
use super::super::panels::{PANEL, Panels};
use super::super::threads::Threads;
use super::super::vector::Eight;
use super::products::{DEPTH, Forward, GROUP, InputGradient, Sizes, WeightGradient};
use crate::{ParamFormat, TensorDesc};

/// Sizes with and without remainders in each division: samples by rows of a tile and by [`DEPTH`], inputs by [`DEPTH`]
/// and [`GROUP`], outputs by panels and by [`DEPTH`].
const SIZES: [[usize; 3]; 7] = [
    [1, 8, 16],
    [5, DEPTH + 8, 24],
    [6, GROUP + PANEL, DEPTH],
    [7, 2 * DEPTH, 40],
    [13, 88, DEPTH + 24],
    [DEPTH, 56, 16],
    [DEPTH + 3, 3 * GROUP + 8, 2 * DEPTH + 8],
];

/// Returns distinct values between -1 and 1.
fn values(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + seed * 104_729) % 65_537) as f32 / 32_768.0 - 1.0).collect()
}

/// Runs all passes and returns y, dW in plain order, db and dx.
fn passes(set: Eight, threads: Threads, sizes: Sizes, relu: bool) -> [Vec<f32>; 4] {
    let Sizes { n, inputs, outputs } = sizes;
    let panels = Format::Panels(Panels::new(outputs, &TensorDesc::plain(1, Shape::vector(inputs))));
    let (x, bias, dy) = (values(n * inputs, 1), values(outputs, 2), values(n * outputs, 3));
    let mut w = vec![0.0; panels.elems()];
    panels.pack(&values(outputs * inputs, 4), &mut w).unwrap();
    // The old content of the workspace must not matter.
    let mut workspace = vec![f32::NAN; sizes.workspace(threads)];
    let [mut y, mut db, mut dx] = [n * outputs, outputs, n * inputs].map(|len| vec![f32::NAN; len]);
    Forward { sizes, x: &x, w: &w, bias: Some(&bias), relu }.run(set, threads, &mut workspace, &mut y);
    let mut dw = vec![f32::NAN; panels.elems()];
    WeightGradient { sizes, x: &x, dy: &dy }.run(set, threads, &mut workspace, &mut dw, Some(&mut db));
    InputGradient { sizes, dy: &dy, w: &w }.run(set, threads, &mut workspace, &mut dx);
    let padding = dw[(outputs / PANEL * inputs * PANEL).min(dw.len())..].chunks_exact(PANEL);
    assert!(padding.flat_map(|row| &row[outputs % PANEL..]).all(|dw| *dw == 0.0), "outputs that pad a panel");
    let mut plain = vec![0.0; outputs * inputs];
    panels.unpack(&dw, &mut plain).unwrap();
    [y, plain, db, dx]
}

/// Computes the results of [`passes`] with plain loops.
fn plain(Sizes { n, inputs, outputs }: Sizes, relu: bool) -> [Vec<f64>; 4] {
    let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<_>>();
    let (x, bias) = (wide(values(n * inputs, 1)), wide(values(outputs, 2)));
    let (dy, w) = (wide(values(n * outputs, 3)), wide(values(outputs * inputs, 4)));
    let (mut y, mut dw, mut db, mut dx) =
        (vec![0.0; n * outputs], vec![0.0; outputs * inputs], vec![0.0; outputs], vec![0.0; n * inputs]);
    for s in 0..n {
        for o in 0..outputs {
            let (x, w) = (&x[s * inputs..][..inputs], &w[o * inputs..][..inputs]);
            let sum = x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>() + bias[o];
            y[s * outputs + o] = if relu { sum.max(0.0) } else { sum };
            let d = dy[s * outputs + o];
            db[o] += d;
            for i in 0..inputs {
                dw[o * inputs + i] += d * x[i];
                dx[s * inputs + i] += d * w[i];
            }
        }
    }
    [y, dw, db, dx]
}

#[test]
fn linear_passes_match_plain_loops() {
    let Some(set) = Eight::detect() else { return crate::skip::skip("the processor has no AVX2") };
    for ([n, inputs, outputs], relu) in SIZES.into_iter().zip([false, true].into_iter().cycle()) {
        let sizes = Sizes { n, inputs, outputs };
        let want = plain(sizes, relu);
        let one = passes(set, Threads(1), sizes, relu);
        for (what, (got, want)) in ["y", "dw", "db", "dx"].iter().zip(one.iter().zip(&want)) {
            let far = got.iter().zip(want).map(|(got, want)| (f64::from(*got) - want).abs()).fold(0.0, f64::max);
            let largest = want.iter().fold(0.0, |largest, want| want.abs().max(largest));
            assert!(far <= 4e-6 * largest.max(1.0), "{what} of {n} x {inputs} to {outputs}: off by {far} of {largest}");
            assert!(got.iter().all(|got| got.is_finite()), "{what} of {n} x {inputs} to {outputs}");
        }
        for threads in [2, 3, 8] {
            let bits = |all: &[Vec<f32>; 4]| all.each_ref().map(|v| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
            assert_eq!(bits(&passes(set, Threads(threads), sizes, relu)), bits(&one), "{threads} threads");
        }
    }
}

#[test]
fn relu_of_nan_is_nan() {
    let Some(set) = Eight::detect() else { return crate::skip::skip("the processor has no AVX2") };
    let sizes = Sizes { n: 1, inputs: 8, outputs: 16 };
    let (mut x, w, mut y) = (vec![1.0; 8], vec![-1.0; 128], vec![9.0; 16]);
    let mut workspace = vec![0.0; sizes.workspace(Threads(1))];
    let mut run = |x: &[f32]| {
        Forward { sizes, x, w: &w, bias: None, relu: true }.run(set, Threads(1), &mut workspace, &mut y);
        y.clone()
    };
    assert_eq!(run(&x), vec![0.0; 16]);
    x[3] = f32::NAN;
    assert!(run(&x).iter().all(|y| y.is_nan()));
}
