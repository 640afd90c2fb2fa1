//! Gradients without PyTorch's help: every operation compared with central differences of the reference's forward pass.
//! `parity.rs` tests many shapes, `graph.rs` whole networks.

use std::collections::BTreeSet;

use backend::Backend;
use backend::reference::Reference;
use net::{
    Activation, Add, Attention, BlurPool, Channels, ClassToken, Concat, Conv, DropPath, Dropout, Flatten, GroupNorm,
    LayerNorm, LayerScale, Linear, Lrn, Multiply, Norm, Op, Pool, PoolKind, PositionBias, PositionEmbedding, Shape,
    Shortcut, SpaceToDepth, Token,
};

use support::numerics::{Case, Outcome, assert_close, magnitude, on_every_backend};

/// Step of the differences: a power of two, much larger than f32's rounding error, much smaller than the spread of the inputs.
const STEP: f32 = 1.0 / 64.0;

/// Returns cases with every kind of operation. Each option of an operation occurs in some case.
fn every_kind() -> Vec<Case> {
    let image = Shape::image(3, 5, 4);
    let asymmetric = Conv { kernel: [3, 2], stride: [2, 1], ..Conv::new(4, 1) }.pads([1, 0, 2, 1]).bias(0.0);
    let norm = Norm::new;
    let pool = |kind| Pool::new(kind, 3, 2).pads([1, 0, 0, 1]).ceil();
    let windows = |bias| Attention { window: Some([2, 3]), position_bias: Some(bias), ..Attention::new(2) };
    let lrn = Lrn { radius: 2, k: 1.5, alpha: 0.4, beta: 0.75 };
    let ops = [
        (Op::Conv(asymmetric), image),
        (Op::Conv(Conv::new(6, 3).pad(1).groups(3).bias(0.0).relu()), image),
        (Op::Conv(Conv::new(10, 3).pad(1).stride(2)), Shape::image(1, 5, 4)),
        (Op::Conv(Conv::new(4, 1).kernel([1, 3]).pads([0, 1, 0, 1]).dilation(2)), image),
        (Op::Conv(Conv::new(6, 3).pad(1).groups(3)), image),
        (Op::Linear(Linear::new(7).relu()), Shape::vector(11)),
        (Op::Linear(Linear::new(5)), image),
        (Op::Norm(norm()), image),
        (Op::Norm(norm().relu()), image),
        (Op::Norm(Norm { scale: false, ..norm().relu() }), image),
        (Op::Norm(Norm { scale: false, ..norm().residual() }), image),
        (Op::Norm(norm().residual()), image),
        (Op::Norm(norm().residual().relu()), image),
        (Op::Pool(pool(PoolKind::Max)), image),
        (Op::Pool(pool(PoolKind::Avg)), image),
        (Op::Pool(pool(PoolKind::AvgCountPad)), image),
        (Op::Pool(Pool::global()), image),
        (Op::Lrn(lrn), Shape::image(7, 2, 3)),
        (Op::Lrn(Lrn { beta: 0.5, ..lrn }), Shape::image(7, 2, 3)),
        (Op::from(Dropout(0.4)), image),
        (Op::from(Add), image),
        (Op::Shortcut(Shortcut { out_channels: 8, stride: 2 }), image),
        (Op::from(Flatten), image),
        (Op::from(Concat), image),
        (Op::from(Multiply), image),
        (Op::from(LayerNorm { eps: 0.1 }), Shape::image(11, 4, 3)),
        (Op::from(LayerNorm { eps: 0.2 }), Shape::vector(24)),
        (Op::from(GroupNorm::new(1)), image),
        (Op::from(GroupNorm::new(3)), Shape::image(6, 3, 2)),
        (Op::from(LayerScale(0.1)), image),
        (Op::from(DropPath(0.4)), image),
        (Op::from(Channels { first: 3, count: 12, groups: 3 }), Shape::image(19, 3, 2)),
        (Op::from(ClassToken), Shape::image(5, 2, 3)),
        (Op::from(PositionEmbedding::default()), Shape::image(5, 2, 3)),
        (Op::from(Token(2)), Shape::image(5, 2, 3)),
        (Op::from(Attention::new(2)), Shape::image(12, 1, 5)),
        (Op::from(Attention { shift: [1, 2], crop: [1, 0], ..windows(PositionBias::Table) }), Shape::image(12, 4, 6)),
        (Op::from(Attention { grid: true, scale: Some(0.4), ..windows(PositionBias::Table) }), Shape::image(12, 4, 3)),
        (Op::from(Attention { cosine: true, ..windows(PositionBias::Continuous(3)) }), Shape::image(24, 2, 6)),
        (
            Op::from(Attention { cosine: true, shift: [1, 1], position_bias: None, ..windows(PositionBias::Table) }),
            Shape::image(24, 4, 3),
        ),
        (Op::from(SpaceToDepth(2)), Shape::image(3, 5, 4)),
        (Op::from(BlurPool::default()), image),
        (Op::from(BlurPool { size: 5, stride: 2 }), image),
    ];
    let functions = Activation::ALL.map(|function| (Op::Activation(function), image));
    let cases = ops.into_iter().chain(functions).zip(1..).map(|((op, shape), k)| Case::random(op, 3, shape, k));
    // batch normalisation in groups with unequal sizes
    let norms = [norm().relu(), Norm { scale: false, ..norm() }, norm().residual().relu()];
    let grouped =
        norms.into_iter().zip(61..).map(|(op, k)| Case { bn_groups: 2, ..Case::random(Op::Norm(op), 5, image, k) });
    let suited = |c: Case| match c.op {
        Op::Pool(_) => spread(c),
        Op::Activation(_) => wide(c),
        Op::Attention(op) if matches!(op.position_bias, Some(PositionBias::Continuous(_))) => off_kinks(c, op),
        _ => c,
    };
    cases.map(suited).chain(grouped).collect()
}

/// Spreads the inputs so that they differ by more than the step, which therefore does not change the position of a maximum.
fn spread(mut case: Case) -> Case {
    let mut order: Vec<usize> = (0..case.x[0].len()).collect();
    order.sort_by(|&a, &b| case.x[0][a].total_cmp(&case.x[0][b]));
    for (rank, i) in order.into_iter().enumerate() {
        case.x[0][i] = (rank as f32 - 90.0) * 4.0 * STEP;
    }
    case
}

/// Sets the biases of the hidden units in a continuous position bias so that no unit is near the kink of its ReLU.
fn off_kinks(mut case: Case, op: Attention) -> Case {
    let biases = case.params[op.leading_parameters() + 1].iter_mut();
    biases.zip([2.0, -2.0].into_iter().cycle()).for_each(|(bias, value)| *bias = value);
    case
}

/// Returns the points where a function of one element has a kink.
fn corners(function: Activation) -> &'static [f32] {
    match function {
        Activation::Relu | Activation::LeakyRelu(_) => &[0.0],
        Activation::Relu6 => &[0.0, 6.0],
        Activation::HardSigmoid | Activation::HardSwish => &[-3.0, 3.0],
        _ => &[],
    }
}

/// Scales the inputs of a function of one element to both sides of all its kinks.
pub fn wide(mut case: Case) -> Case {
    case.x[0].iter_mut().for_each(|x| *x *= 8.0);
    case
}

/// Returns the values that enter a function with kinks, and the positions of the kinks, if the operation has such a function.
fn before_function(case: &Case) -> Option<(Vec<f32>, &'static [f32])> {
    let fused = match &case.op {
        Op::Conv(c) => c.relu,
        Op::Linear(l) => l.relu,
        Op::Norm(n) => n.relu,
        _ => false,
    };
    match case.op {
        Op::Activation(function) => Some((case.x[0].clone(), corners(function))),
        _ if fused => Some((Case { dy: None, ..case.without_relu() }.run(&Reference, 1, false).y, &[0.0])),
        _ => None,
    }
}

/// Sets the gradient of the output to zero wherever a function has a kink within `margin`.
pub fn off_corners(mut case: Case, margin: f32) -> Case {
    if let Some((before, corners)) = before_function(&case) {
        let dy = case.dy.as_mut().expect("a gradient of the output");
        for corner in corners {
            let near = dy.iter_mut().zip(&before).filter(|(_, v)| (**v - corner).abs() < margin);
            near.for_each(|(d, _)| *d = 0.0);
            let both = before.iter().any(|v| v - corner > margin) && before.iter().any(|v| v - corner < -margin);
            assert!(both || before.len() < 40, "{:?}: all values are on one side of {corner}", case.op);
        }
    }
    case
}

fn objective(case: &Case, dy: &[f32]) -> f64 {
    let y = case.run(&Reference, 1, false).y;
    y.iter().zip(dy).map(|(y, d)| f64::from(*y) * f64::from(*d)).sum()
}

/// Returns the slope of the objective for each element of one tensor.
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

/// The slopes of one case for each tensor: inputs, then parameters.
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
    assert_eq!(kinds.len(), 35, "each kind of operation needs a case here: {kinds:?}");
    on_every_backend!(check_slopes(&all));
}
