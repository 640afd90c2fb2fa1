//! Rounding errors of every implementation of a convolution, compared with those of the direct form in f32.

use net::{Conv, Op, Shape};

use support::numerics::{Case, cpu};

/// Channels per block. The direct form sums within blocks first.
const BLOCK: usize = 16;

/// A 3x3 convolution with padding 1, computed directly, as the standard for rounding errors.
struct Direct<'a> {
    case: &'a Case,
    x: Shape,
    y: Shape,
    stride: usize,
}

/// Sums of products: exact ones, and f32 sums in sequential order.
#[derive(Default)]
struct Sums {
    exact: Vec<f64>,
    direct: Vec<f32>,
}

impl Sums {
    fn add(&mut self, terms: impl Iterator<Item = (f32, f32)>) {
        let (exact, direct) = terms.fold((0.0, 0.0), |(exact, direct), (a, b): (f32, f32)| {
            (exact + f64::from(a) * f64::from(b), a.mul_add(b, direct))
        });
        self.exact.push(exact);
        self.direct.push(direct);
    }

    /// Returns the error of `got`, relative to the error of the direct form.
    fn ratio(&self, got: &[f32]) -> f64 {
        let error = |values: &[f32]| -> f64 {
            self.exact.iter().zip(values).map(|(exact, value)| (f64::from(*value) - exact).powi(2)).sum::<f64>().sqrt()
        };
        error(got) / error(&self.direct)
    }
}

impl Direct<'_> {
    fn of(case: &Case) -> Direct<'_> {
        let Op::Conv(conv) = &case.op else { panic!("{:?} is not a convolution", case.op) };
        Direct { case, x: case.shape, y: case.op.output(&[case.shape]).unwrap(), stride: conv.stride[0] }
    }

    fn meets(&self, at: usize, tap: usize, size: usize) -> Option<usize> {
        (at * self.stride + tap).checked_sub(1).filter(|at| *at < size)
    }

    fn outputs(&self, at: usize, tap: usize, size: usize) -> Option<usize> {
        let from = (at + 1).checked_sub(tap)?;
        (from.is_multiple_of(self.stride) && from / self.stride < size).then_some(from / self.stride)
    }

    fn weight(&self, o: usize, i: usize, r: usize, c: usize) -> f32 {
        self.case.params[0][((o * self.x.c + i) * 3 + r) * 3 + c]
    }

    fn at(shape: Shape, n: usize, c: usize, [row, column]: [usize; 2]) -> usize {
        ((n * shape.c + c) * shape.h + row) * shape.w + column
    }

    /// Returns every channel with every tap, in the order of channel blocks.
    fn terms(channels: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..channels).step_by(BLOCK).flat_map(move |block| {
            (0..9).flat_map(move |tap| (block..channels.min(block + BLOCK)).map(move |k| (k, tap / 3, tap % 3)))
        })
    }

    fn forward(&self) -> Sums {
        let (mut sums, (x, y)) = (Sums::default(), (self.x, self.y));
        for (n, o, p) in places(self.case.n, y) {
            sums.add(Self::terms(x.c).filter_map(|(i, r, c)| {
                let from = [self.meets(p[0], r, x.h)?, self.meets(p[1], c, x.w)?];
                Some((self.case.x[0][Self::at(x, n, i, from)], self.weight(o, i, r, c)))
            }));
        }
        sums
    }

    fn inputs(&self, dy: &[f32]) -> Sums {
        let (mut sums, (x, y)) = (Sums::default(), (self.x, self.y));
        for (n, i, p) in places(self.case.n, x) {
            sums.add(Self::terms(y.c).filter_map(|(o, r, c)| {
                let from = [self.outputs(p[0], r, y.h)?, self.outputs(p[1], c, y.w)?];
                Some((dy[Self::at(y, n, o, from)], self.weight(o, i, r, c)))
            }));
        }
        sums
    }

    fn weights(&self, dy: &[f32]) -> Sums {
        let (mut sums, (x, y)) = (Sums::default(), (self.x, self.y));
        for (o, i, [r, c]) in places(y.c, Shape::image(x.c, 3, 3)) {
            sums.add(places(self.case.n, Shape { c: 1, ..y }).filter_map(|(n, _, p)| {
                let from = [self.meets(p[0], r, x.h)?, self.meets(p[1], c, x.w)?];
                Some((dy[Self::at(y, n, o, p)], self.case.x[0][Self::at(x, n, i, from)]))
            }));
        }
        sums
    }
}

/// Returns all positions of images in order: image, channel, [row, column].
fn places(n: usize, shape: Shape) -> impl Iterator<Item = (usize, usize, [usize; 2])> {
    let (plane, w) = (shape.plane(), shape.w);
    (0..n * shape.c).flat_map(move |k| (0..plane).map(move |p| (k / shape.c, k % shape.c, [p / w, p % w])))
}

/// Inputs are outputs of a ReLU. The sizes give whole tiles, tiles at the edges, and channels shared among threads.
#[test]
fn convolution_errors_are_at_most_twice_the_direct_form() {
    for (stride, inputs, outputs, size, n) in [
        (1, 16, 16, 16, 2),
        (1, 64, 64, 14, 1),
        (2, 16, 32, 32, 2),
        (2, 64, 64, 28, 1),
        (2, 128, 48, 14, 3),
        (2, 40, 40, 21, 2),
        (2, 272, 32, 14, 4),
    ] {
        let conv = Conv::new(outputs, 3).pad(1).stride(stride);
        let mut case = Case::random(Op::Conv(conv), n, Shape::image(inputs, size, size), 31);
        case.x[0].iter_mut().for_each(|x| *x = x.max(0.0));
        let (direct, dy) = (Direct::of(&case), case.dy.as_ref().unwrap());
        let (y, dx, dw) = (direct.forward(), direct.inputs(dy), direct.weights(dy));
        // only blocks of the length of a vector register have more than one implementation
        for (block, number) in [8, 16].into_iter().flat_map(|block| (0..).map(move |number| (block, number)).take(2)) {
            let Some(got) = case.run_by(&cpu(2), block, false, number) else { continue };
            let ratios = [y.ratio(&got.y), dx.ratio(&got.dx[0]), dw.ratio(&got.dparams[0])];
            let what =
                format!("stride {stride}, {inputs} to {outputs}, {size}x{size}, {block}, implementation {number}");
            println!("{what}: {ratios:.2?}");
            assert!(
                ratios.iter().all(|ratio| *ratio <= 2.0),
                "{what}: relative errors of forward, input and weights: {ratios:.2?}"
            );
        }
    }
}
