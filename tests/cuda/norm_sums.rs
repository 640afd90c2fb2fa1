//! Batch normalisation on the GPU adds in a fixed order, which this file repeats on the host. Statistics and gradients
//! must agree bit for bit, whichever block ends last.

use backend::cuda::{Cuda, Precision};
use net::{Norm, Op, Shape};

use crate::stdout_of;
use support::gpu::alone;
use support::numerics::{Case, Outcome, cuda, noise};

const THREADS: usize = 256;
/// Rows that a thread adds in f32 before it continues in f64.
const RUN: usize = 16;
/// Rows that a thread loads together.
const BATCH: usize = 4;

/// How the kernels divide a matrix (rows, channels) among blocks.
struct Order {
    rows: usize,
    /// Channels per memory access.
    pack: usize,
    /// Channels per tile.
    width: usize,
    /// Blocks along the rows.
    splits: usize,
}

impl Order {
    fn new(cuda: &Cuda, bytes: usize, rows: usize, channels: usize) -> Self {
        let gpus = cuda.gpu().multiprocessors as usize;
        let pack = if channels.is_multiple_of(16 / bytes) { 16 / bytes } else { 1 };
        let columns = channels / pack;
        let small = rows * columns < 2 * gpus * THREADS * BATCH;
        let tile = columns.min(if small { 32 } else { 128 } / (pack * bytes));
        let (tiles, lines) = (columns.div_ceil(tile), THREADS / tile);
        let large = (3 * gpus / tiles).min(rows.div_ceil(lines * BATCH)).max(1);
        let splits = if small { (2 * gpus).div_ceil(tiles).min(rows.div_ceil(lines)) } else { large };
        Self { rows, pack, width: tile * pack, splits }
    }

    fn lines(&self) -> usize {
        THREADS * self.pack / self.width
    }

    /// Adds the rows of one thread, which start at `first`: [`RUN`] rows at a time in f32, and these sums in f64.
    fn thread(&self, first: usize, add: &impl Fn(f32, usize) -> f32) -> f64 {
        let rows: Vec<usize> = (first..self.rows).step_by(self.splits * self.lines()).collect();
        rows.chunks(RUN)
            .map(|run| run.iter().fold(0.0, |sum, &row| add(sum, row)))
            .fold(0.0, |sum, run| sum + f64::from(run))
    }

    /// Adds values as a block does: each thread adds its share of the values one after another, then the threads add their sums in a tree.
    fn shared(&self, items: usize, values: &[f64]) -> f64 {
        let groups = THREADS / items;
        let share = |group: usize| values.iter().skip(group).step_by(groups).fold(0.0, |sum, v| sum + v);
        let mut sums: Vec<f64> = (0..groups).map(share).collect();
        while sums.len() > 1 {
            let half = sums.len().div_ceil(2);
            let upper = sums.split_off(half);
            sums.iter_mut().zip(upper).for_each(|(sum, v)| *sum += v);
        }
        sums[0]
    }

    /// Returns a sum over all rows, in the order in which the kernels add. `add(sum, row)` adds the term of a row.
    fn sum(&self, add: impl Fn(f32, usize) -> f32) -> f64 {
        let (items, lines) = (2 * self.width, self.lines());
        let block = |block: usize| {
            let threads: Vec<f64> = (0..lines).map(|line| self.thread(block * lines + line, &add)).collect();
            self.shared(items, &threads)
        };
        self.shared(items, &(0..self.splits).map(block).collect::<Vec<_>>())
    }
}

struct Channel {
    mean: f64,
    m2: f64,
    dgamma: f32,
    dbeta: f32,
}

fn channel(order: &Order, case: &Case, norm: &Norm, c: usize) -> Channel {
    let plane = case.shape.plane();
    let at = |row: usize| (row / plane * case.shape.c + c) * plane + row % plane;
    let n = order.rows as f64;
    let x = |row: usize| case.x[0][at(row)];
    let near = x(0);
    let sums = [
        order.sum(|sum, row| sum + (x(row) - near)),
        order.sum(|sum, row| (x(row) - near).mul_add(x(row) - near, sum)),
    ];
    let offset = sums[0] / n;
    let mean = f64::from(near) + offset;
    let m2 = (-sums[0]).mul_add(offset, sums[1]).max(0.0);
    let (gamma, beta) = (f64::from(case.params[0][c]), f64::from(case.params[1][c]));
    let scale = gamma / (m2 / n + f64::from(norm.eps)).sqrt();
    let about = mean as f32;
    let bias = (-(mean - f64::from(about))).mul_add(scale, beta) as f32;
    let y = |row: usize| {
        let y = (x(row) - about).mul_add(scale as f32, bias);
        if norm.residual { y + case.x[1][at(row)] } else { y }
    };
    let dy = case.dy.as_ref().expect("a gradient");
    let g = |row: usize| if norm.relu && y(row) <= 0.0 { 0.0 } else { dy[at(row)] };
    let s = order.sum(|sum, row| sum + g(row));
    let sx = order.sum(|sum, row| g(row).mul_add(x(row) - about, sum));
    let sx = (-(mean - f64::from(about))).mul_add(s, sx);
    Channel { mean, m2, dgamma: (sx / (m2 / n + f64::from(norm.eps)).sqrt()) as f32, dbeta: s as f32 }
}

fn short(values: &mut [f32]) {
    values.iter_mut().for_each(|v| *v = f32::from_bits(v.to_bits() & 0xffff_0000));
}

fn case(norm: &Norm, n: usize, shape: Shape) -> Case {
    let mut case = Case::random(Op::Norm(norm.clone()), n, shape, 31);
    // makes the offset of x large compared with its spread, so that rounding errors are visible, and the residual far
    // from 0, so that no value is near the kink of ReLU
    case.x[0].iter_mut().zip(noise(n * shape.elems(), 8, 0.5)).for_each(|(x, v)| *x += 3.0 + v);
    // scales rows by such different powers of two that even sums in f64 are rounded
    for (values, step) in case.x[..1].iter_mut().chain(&mut case.dy).zip([1, 7]) {
        for (i, value) in values.iter_mut().enumerate() {
            *value *= f32::powi(2.0, (step * (i % shape.plane()) % 25) as i32 - 12);
        }
    }
    if let Some(residual) = case.x.get_mut(1) {
        residual.iter_mut().for_each(|v| *v = (8.0 + *v).copysign(*v));
    }
    case.x.iter_mut().chain(&mut case.dy).for_each(|values| short(values));
    case.running = vec![0.0; 2 * shape.c];
    case
}

fn check(cuda: &Cuda, bytes: usize, norm: &Norm, n: usize, shape: Shape) -> Outcome {
    let case = case(norm, n, shape);
    let order = Order::new(cuda, bytes, n * shape.plane(), shape.c);
    let rows = order.rows as f64;
    let out = case.run(cuda, 0, false);
    for c in 0..shape.c {
        let want = channel(&order, &case, norm, c);
        // the running means are zero, so the kernel returns the sums of x and of x^2
        let pooled = [rows * want.mean, rows * (want.m2 / rows + want.mean * want.mean)];
        let got = [out.statistics.0[c], out.statistics.0[shape.c + c]];
        let what = format!("{norm:?} of {n} x {shape} in {bytes} bytes, {} splits, channel {c}", order.splits);
        assert_eq!(
            got.map(f64::to_bits),
            pooled.map(f64::to_bits),
            "{what}: statistics: expected {pooled:?}, got {got:?}"
        );
        let (got, want) = ([out.dparams[0][c], out.dparams[1][c]], [want.dgamma, want.dbeta]);
        assert_eq!(got.map(f32::to_bits), want.map(f32::to_bits), "{what}: gradients: expected {want:?}, got {got:?}");
    }
    out
}

fn check_all() -> Vec<u64> {
    let mut bits = Vec::new();
    for (precision, bytes) in [(Precision::F32, 4), (Precision::Bf16, 2)] {
        let cuda = cuda(precision);
        // the first three batch sizes grow with the GPU, so that more than one block adds a tile's rows on any GPU.
        // They test more than [`RUN`] rows per thread, adjacent tiles, and a width that is not a power of two. The last
        // two have an odd number of channels and fewer rows than threads.
        let gpus = cuda.gpu().multiprocessors as usize;
        for (n, shape) in [
            (4 * gpus, Shape::image(16, 32, 32)),
            (2 * gpus, Shape::image(128, 12, 12)),
            (5 * gpus / 2, Shape::image(40, 20, 20)),
            (3, Shape::image(5, 17, 13)),
            (2, Shape::image(8, 3, 3)),
        ] {
            for norm in [Norm::new().relu(), Norm::new().residual().relu()] {
                let out = check(&cuda, bytes, &norm, n, shape);
                let all = out.y.iter().chain(out.dx.iter().flatten()).chain(out.dparams.iter().flatten());
                bits.extend(all.map(|v| u64::from(v.to_bits())).chain(out.statistics.0.iter().map(|v| v.to_bits())));
            }
        }
    }
    bits
}

#[test]
fn sums_are_the_hosts_to_the_bit() {
    let _alone = alone();
    check_all();
}

#[test]
#[ignore = "run with settings"]
fn in_this_order() {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    check_all().hash(&mut hasher);
    println!("bits {:016x}", hasher.finish());
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn no_bit_depends_on_which_block_ends_last() {
    let bits = ["lazy", "reverse", "7", "8"].map(|order| {
        let text = stdout_of("norm_sums::in_this_order", &[("TRIREME_EMULATED_ORDER", order)]);
        let bits = text.lines().find_map(|line| line.split_once("bits ").map(|(_, bits)| bits.to_string()));
        bits.unwrap_or_else(|| panic!("{order}: {text}"))
    });
    assert!(bits.iter().all(|other| *other == bits[0]), "{bits:?}");
}
