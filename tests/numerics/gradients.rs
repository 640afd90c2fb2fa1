//! Gradients without PyTorch's help: every operation against central differences of the reference's forward pass, then the CPU
//! against the reference over many shapes. Whole networks are in `graph.rs`.

use std::collections::BTreeSet;

use crate::support::numerics::{
    BLOCKED, CHANNELS_LAST, Case, Chooser, Outcome, assert_close, cpu, cuda, magnitude, noise, on_every_backend,
    on_reference,
};
use trireme::backend::Backend;
use trireme::backend::cuda::Precision;
use trireme::backend::op::{
    Add, Conv, Dropout, Flatten, Linear, Lrn, Norm, Op, Pool, PoolKind, Relu, Shape, Shortcut, Silu, Tanh,
};
use trireme::backend::reference::Reference;

/// Step of the differences: exact in binary, far above f32's rounding, far below the inputs' spread.
const STEP: f32 = 1.0 / 64.0;

/// Every kind of operation, with each of its options somewhere.
fn every_kind() -> Vec<Case> {
    let image = Shape::image(3, 5, 4);
    let asymmetric = Conv { kernel: [3, 2], stride: [2, 1], ..Conv::new(4, 1) }.pads([1, 0, 2, 1]).bias(0.0);
    let norm = Norm::new;
    let pool = |kind| Pool::new(kind, 3, 2).pads([1, 0, 0, 1]).ceil();
    let lrn = Lrn { radius: 2, k: 1.5, alpha: 0.4, beta: 0.75 };
    let ops = [
        (Op::Conv(asymmetric), image),
        (Op::Conv(Conv::new(6, 3).pad(1).groups(3).bias(0.0).relu()), image),
        (Op::Conv(Conv::new(10, 3).pad(1).stride(2)), Shape::image(1, 5, 4)),
        (Op::Linear(Linear::new(7).relu()), Shape::vector(11)),
        (Op::Linear(Linear::new(5)), image),
        (Op::Norm(norm()), image),
        (Op::Norm(norm().relu()), image),
        (Op::Norm(norm().residual()), image),
        (Op::Norm(norm().residual().relu()), image),
        (Op::Pool(pool(PoolKind::Max)), image),
        (Op::Pool(pool(PoolKind::Avg)), image),
        (Op::Pool(pool(PoolKind::AvgCountPad)), image),
        (Op::Pool(Pool::global()), image),
        (Op::Lrn(lrn), Shape::image(7, 2, 3)),
        (Op::Lrn(Lrn { beta: 0.5, ..lrn }), Shape::image(7, 2, 3)),
        (Op::from(Relu), image),
        (Op::from(Tanh), image),
        (Op::from(Dropout(0.4)), image),
        (Op::from(Add), image),
        (Op::Shortcut(Shortcut { out_channels: 8, stride: 2 }), image),
        (Op::from(Flatten), image),
        (Op::from(Silu), image),
    ];
    let cases = ops.into_iter().zip(1..).map(|((op, shape), k)| Case::random(op, 3, shape, k));
    cases.map(|c| if matches!(c.op, Op::Pool(_)) { spread(c) } else { c }).collect()
}

/// Inputs whose values differ by several steps, so that no difference changes the winner of a maximum.
fn spread(mut case: Case) -> Case {
    let mut order: Vec<usize> = (0..case.x[0].len()).collect();
    order.sort_by(|&a, &b| case.x[0][a].total_cmp(&case.x[0][b]));
    for (rank, i) in order.into_iter().enumerate() {
        case.x[0][i] = (rank as f32 - 90.0) * 4.0 * STEP;
    }
    case
}

/// The values at whose zero the operation's ReLU bends, if it has one.
fn before_relu(case: &Case) -> Option<Vec<f32>> {
    let fused = match &case.op {
        Op::Conv(c) => c.relu,
        Op::Linear(l) => l.relu,
        Op::Norm(n) => n.relu,
        _ => false,
    };
    match case.op {
        Op::Relu(_) => Some(case.x[0].clone()),
        _ if fused => Some(Case { dy: None, ..case.without_relu() }.run(&Reference, 1, false).y),
        _ => None,
    }
}

/// A case whose incoming gradient is zero wherever a ReLU bends within `margin`.
fn off_corners(mut case: Case, margin: f32) -> Case {
    if let Some(before) = before_relu(&case) {
        let dy = case.dy.as_mut().expect("a gradient of the output");
        dy.iter_mut().zip(&before).filter(|(_, v)| v.abs() < margin).for_each(|(d, _)| *d = 0.0);
        let both = before.iter().any(|v| *v > margin) && before.iter().any(|v| *v < -margin);
        assert!(both || before.len() < 40, "{:?}: values on one side of zero only", case.op);
    }
    case
}

/// Sum of y * dy.
fn objective(case: &Case, dy: &[f32]) -> f64 {
    let y = case.run(&Reference, 1, false).y;
    y.iter().zip(dy).map(|(y, d)| f64::from(*y) * f64::from(*d)).sum()
}

/// Slope of the objective along every element of one tensor.
fn slopes(case: &Case, tensor: impl Fn(&mut Case) -> &mut Vec<f32>) -> Vec<f64> {
    let dy = case.dy.clone().expect("a gradient of the output");
    let mut case = Case { dy: None, ..case.clone() };
    let elems = tensor(&mut case).len();
    (0..elems)
        .map(|i| {
            let at = tensor(&mut case)[i];
            let mut side = |step: f32| {
                tensor(&mut case)[i] = at + step;
                (objective(&case, &dy), f64::from(at + step))
            };
            let ((above, to), (below, from)) = (side(STEP), side(-STEP));
            tensor(&mut case)[i] = at;
            (above - below) / (to - from)
        })
        .collect()
}

/// Slopes of one case, by tensor: inputs, then parameters.
struct Slopes {
    case: Case,
    tensors: Vec<Vec<f64>>,
}

impl Slopes {
    fn of(case: Case) -> Self {
        let case = off_corners(case, 0.1);
        let inputs = (0..case.x.len()).map(|t| slopes(&case, |c| &mut c.x[t]));
        let params = (0..case.params.len()).map(|t| slopes(&case, |c| &mut c.params[t]));
        let tensors = inputs.chain(params).collect();
        Self { case, tensors }
    }

    fn check(&self, what: &str, out: &Outcome) {
        assert_eq!(out.dx.len() + out.dparams.len(), self.tensors.len(), "{what}: number of gradients");
        for (t, (want, got)) in self.tensors.iter().zip(out.dx.iter().chain(&out.dparams)).enumerate() {
            assert_close(&format!("{what}, gradient {t}"), got, want, 1e-3 * magnitude(want) + 1e-4);
        }
    }
}

fn check_slopes<B: Backend>(backend: &B, name: &str, blocks: &[usize], all: &[Slopes]) {
    for slopes in all {
        for &block in blocks {
            for split in [false, true] {
                let what = format!("{:?} on {name} in blocks of {block}, split {split}", slopes.case.op);
                slopes.check(&what, &slopes.case.run(backend, block, split));
            }
        }
    }
}

#[test]
fn gradients_are_the_slopes_of_the_forward_pass() {
    let all: Vec<Slopes> = every_kind().into_iter().map(Slopes::of).collect();
    let kinds: BTreeSet<&str> = all.iter().map(|s| s.case.op.kind()).collect();
    assert_eq!(kinds.len(), 13, "each kind of operation needs a case here: {kinds:?}");
    on_every_backend!(check_slopes(&all));
}

/// The CPU gives what the reference gives, in every layout, with one thread and two, and so does CUDA in its own.
fn assert_parity(cases: Vec<Case>) {
    let backends = [(cpu(1), "1 thread"), (cpu(2), "2 threads")];
    let cuda = cuda(Precision::F32);
    for case in cases {
        let case = off_corners(case, 1e-4);
        let want = on_reference(&case);
        for (backend, name) in &backends {
            BLOCKED.iter().for_each(|&block| assert_agrees(backend, name, block, &case, &want));
        }
        if let Some(cuda) = &cuda {
            CHANNELS_LAST.iter().for_each(|&block| assert_agrees(cuda, "cuda", block, &case, &want));
        }
    }
}

fn assert_agrees<B: Backend>(backend: &B, name: &str, block: usize, case: &Case, want: &Outcome) {
    let what = format!("{:?} of {} x {} in blocks of {block} on {name}", case.op, case.n, case.shape);
    let got = case.run(backend, block, true);
    let close = |of: &str, got: &[f32], want: &[f32]| {
        assert_close(&format!("{what}: {of}"), got, want, 1e-5 * magnitude(want) + 1e-6);
    };
    close("y", &got.y, &want.y);
    got.dx.iter().zip(&want.dx).for_each(|(g, w)| close("dx", g, w));
    got.dparams.iter().zip(&want.dparams).for_each(|(g, w)| close("dparams", g, w));
    assert_eq!(got.statistics.1, want.statistics.1, "{what}: count");
    let sums: Vec<f32> = got.statistics.0.iter().map(|s| *s as f32).collect();
    assert_close(&format!("{what}: statistics"), &sums, &want.statistics.0, 1e-5 * magnitude(&want.statistics.0));
}

const CHANNELS: &[usize] = &[1, 2, 3, 5, 8, 12, 16, 20];

fn random_conv(c: &mut Chooser, k: u64) -> Case {
    let groups = c.one(&[1, 1, 1, 2, 4]);
    let (inputs, outputs) = (groups * c.one(CHANNELS).min(20 / groups), groups * c.one(CHANNELS).min(20 / groups));
    let kernel = [1 + c.below(4), 1 + c.below(4)];
    let stride = [1 + c.below(3), 1 + c.below(3)];
    let pads = [c.below(kernel[0]), c.below(kernel[1]), c.below(kernel[0]), c.below(kernel[1])];
    let plane = [kernel[0] + c.below(6), kernel[1] + c.below(6)];
    let (bias, relu) = (c.below(2) == 0, c.below(2) == 0);
    let op = Conv { kernel, stride, pads, groups, bias, relu, ..Conv::new(outputs, 1) };
    Case::random(Op::Conv(op), 1 + c.below(3), Shape::image(inputs, plane[0], plane[1]), k)
}

#[test]
fn convolutions_of_any_shape_agree() {
    let mut c = Chooser(1);
    assert_parity((0..60).map(|k| random_conv(&mut c, k)).collect());
}

#[test]
fn convolutions_of_single_channels_agree() {
    let mut cases = Vec::new();
    for (kernel, stride, pad) in
        [(5, 1, 2), (5, 1, 0), (3, 2, 1), (3, 3, 0), (3, 3, 1), (1, 1, 0), (1, 2, 0), (7, 2, 3), (2, 1, 1)]
    {
        for (n, outputs, h, w) in [(1, 20, 9, 8), (4, 8, 7, 10), (3, 5, 7, 7)] {
            let conv = Conv::new(outputs, kernel).stride(stride).pad(pad).bias(0.0).relu();
            cases.push(Case::random(Op::Conv(conv), n, Shape::image(1, h, w), cases.len() as u64));
        }
    }
    let uneven = Conv { kernel: [4, 2], stride: [1, 3], ..Conv::new(9, 1) }.pads([3, 0, 1, 1]);
    cases.push(Case::random(Op::Conv(uneven), 2, Shape::image(1, 6, 8), 99));
    assert_parity(cases);
}

/// The sizes that AVX2 runs by Winograd's filtering: even and odd planes, whole and partial strips of tiles, channels that fill
/// neither a block nor a group of columns.
#[test]
fn same_sized_3x3_and_5x5_convolutions_agree() {
    let mut cases = Vec::new();
    for (inputs, outputs) in [(8, 8), (16, 24), (20, 50), (3, 16)] {
        for (h, w) in [(4, 4), (5, 7), (8, 9)] {
            for (kernel, n) in [(3, 3), (5, 1)] {
                let conv = Conv::new(outputs, kernel).pad(kernel / 2);
                let conv = if cases.len() % 2 == 0 { conv } else { conv.bias(0.0).relu() };
                cases.push(Case::random(Op::Conv(conv), n, Shape::image(inputs, h, w), 700 + cases.len() as u64));
            }
        }
    }
    // several strips in an image
    cases.push(Case::random(Op::Conv(Conv::new(8, 3).pad(1)), 2, Shape::image(8, 13, 16), 790));
    assert_parity(cases);
}

#[test]
fn single_positions_and_single_rows_agree() {
    let mut cases = Vec::new();
    for n in [1, 2, 5] {
        for channels in [1, 3, 8, 20, 32] {
            let point = Shape::image(channels, 1, 1);
            let ops = [
                Op::Conv(Conv::new(12, 1).bias(0.0)),
                Op::Conv(Conv::new(8, 3).pad(1).relu()),
                Op::Linear(Linear::new(10)),
                Op::Norm(Norm::new().relu()),
                Op::Norm(Norm::new().residual()),
                Op::Pool(Pool::global()),
                Op::Pool(Pool::new(PoolKind::Max, 3, 2).pads([1; 4])),
                Op::Lrn(Lrn { radius: 4, k: 1.0, alpha: 0.1, beta: 0.75 }),
                Op::Shortcut(Shortcut { out_channels: 2 * channels, stride: 2 }),
                Op::from(Relu),
                Op::from(Add),
            ];
            cases.extend(ops.into_iter().zip(200..).map(|(op, k)| Case::random(op, n, point, k)));
        }
    }
    // of one value per channel, normalisation leaves nothing but rounding: there is no gradient to agree on
    cases.retain(|c| c.n > 2 || !matches!(c.op, Op::Norm(_)));
    assert_parity(cases);
}

#[test]
fn layers_of_any_shape_agree() {
    let mut c = Chooser(2);
    let elementwise = [Op::from(Relu), Op::from(Tanh), Op::from(Add), Op::from(Dropout(0.5)), Op::from(Silu)];
    let mut cases = Vec::new();
    for k in 300..340 {
        let shape = Shape::image(c.one(CHANNELS), 2 + c.below(7), 2 + c.below(7));
        let n = 1 + c.below(5);
        let kind = c.one(&[PoolKind::Max, PoolKind::Avg, PoolKind::AvgCountPad]);
        let window = 1 + c.below(shape.h.min(shape.w).min(4));
        let pads = [c.below(window), c.below(window), c.below(window), c.below(window)];
        let pool = Pool { ceil: c.below(2) == 0, ..Pool::new(kind, window, 1 + c.below(3)).pads(pads) };
        let norm = Norm { residual: c.below(2) == 0, relu: c.below(2) == 0, ..Norm::new() };
        let (radius, beta) = (c.below(6), c.one(&[0.75, 0.5, 1.0]));
        let shortcut = Shortcut { out_channels: shape.c + c.below(30), stride: 1 + c.below(3) };
        let linear = Linear { bias: c.below(2) == 0, relu: c.below(2) == 0, ..Linear::new(1 + c.below(40)) };
        let ops = [
            Op::Pool(pool),
            Op::Norm(norm),
            Op::Lrn(Lrn { radius, k: 1.0, alpha: 0.3, beta }),
            Op::Shortcut(shortcut),
            Op::Linear(linear),
            elementwise[c.below(4)].clone(),
        ];
        cases.extend(ops.into_iter().map(|op| Case::random(op, n, shape, k)));
    }
    assert_parity(cases);
}

fn check_ties<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    let case = Case {
        x: vec![vec![1.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]],
        dy: Some(vec![3.0, 5.0]),
        ..Case::random(Op::Pool(Pool::new(PoolKind::Max, 2, 2)), 2, Shape::image(1, 2, 2), 1)
    };
    for &block in blocks {
        let out = case.run(backend, block, false);
        assert_eq!(out.y, [2.0, 0.0], "{name}");
        assert_eq!(out.dx[0], [0.0, 3.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0], "{name} in blocks of {block}");
    }
}

#[test]
fn the_first_of_equal_maxima_takes_the_gradient() {
    on_every_backend!(check_ties());
}

fn check_statistics<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    // channel 0: values 1 and 3, running mean 0.5: d = 1.5, M2 = 2; channel 1: 10 and 10, running mean 10: d = 0, M2 = 0
    let case = Case {
        x: vec![vec![1.0, 10.0, 3.0, 10.0]],
        running: vec![0.5, 10.0, 1.0, 1.0],
        ..Case::random(Op::Norm(Norm::new()), 2, Shape::image(2, 1, 1), 1)
    };
    for &block in blocks {
        let (sums, count) = case.run(backend, block, false).statistics;
        assert_eq!(count, 2, "{name}");
        assert_eq!(sums, [3.0, 0.0, 2.0 + 2.0 * 2.25, 0.0], "{name} in blocks of {block}");
    }
}

#[test]
fn pooled_statistics_are_those_of_the_formula() {
    on_every_backend!(check_statistics());
}

/// Which elements dropout keeps, given that each is 1.
fn mask<B: Backend>(backend: &B, block: usize, draws: (u64, u32, u64, u16)) -> Vec<f32> {
    let (n, shape) = (4, Shape::image(20, 16, 16));
    let ones = vec![1.0; n * shape.elems()];
    let case =
        Case { x: vec![ones.clone()], dy: Some(ones), draws, ..Case::random(Op::from(Dropout(0.3)), n, shape, 1) };
    let out = case.run(backend, block, false);
    assert_eq!(out.y, out.dx[0], "the same elements pass both ways");
    out.y
}

fn check_dropout<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    let want = mask(&Reference, 1, (9, 2, 1_000, 5));
    for &block in blocks {
        assert_eq!(mask(backend, block, (9, 2, 1_000, 5)), want, "{name} in blocks of {block}");
    }
    // a mask belongs to seed, epoch, sample and operation, wherever the sample stands in its batch
    for other in [(10, 2, 1_000, 5), (9, 3, 1_000, 5), (9, 2, 2_000, 5), (9, 2, 1_000, 6)] {
        assert_ne!(mask(backend, blocks[0], other), want, "{name} with {other:?}");
    }
    let shifted = mask(backend, blocks[0], (9, 2, 1_001, 5));
    let sample = want.len() / 4;
    assert_eq!(shifted[..3 * sample], want[sample..], "{name}: sample 1001");
    let x = vec![noise(2 * 12, 3, 1.0)];
    let evaluation =
        Case { x, training: false, dy: None, ..Case::random(Op::from(Dropout(0.3)), 2, Shape::vector(12), 1) };
    assert_eq!(evaluation.run(backend, 1, false).y, evaluation.x[0], "{name}: evaluation drops nothing");
}

#[test]
fn dropout_is_the_same_everywhere_and_drops_its_share() {
    on_every_backend!(check_dropout());
    let mask = mask(&Reference, 1, (9, 2, 1_000, 5));
    let kept = mask.iter().filter(|v| **v > 0.0).count() as f64 / mask.len() as f64;
    let deviation = (0.3 * 0.7 / mask.len() as f64).sqrt();
    assert!((kept - 0.7).abs() < 4.0 * deviation, "kept {kept} of all, 0.7 expected");
    assert!(mask.iter().all(|v| *v == 0.0 || *v == 1.0 / (1.0 - 0.3f32)), "what is kept grows to 1 / (1 - p)");
}
