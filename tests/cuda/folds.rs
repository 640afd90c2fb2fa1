//! What the CUDA backend plans: strided convolutions over the network's input, which are computed on a folded image and
//! compared with the reference on the same rounded inputs; the tensors that are kept for the backward pass, which the tests
//! of operations check too, because they pass empty buffers for all others; and shortcuts that batch norms read through.

use backend::cuda::{Cuda, Precision, Settings};
use backend::{Backend, Error, Input, Keeps, PlanRequest, Planned, TensorDesc};
use engine::memory::{Memory, NodeFacts};
use engine::optim::OptimizerSpec;
use engine::{Batch, Graph, Loss, MicroBatch, Purpose, estimate};
use half::{bf16, f16};
use net::{
    Activation, Add, Attention, BlurPool, Channels, ClassToken, Concat, Conv, DropPath, Dropout, Flatten, GroupNorm,
    Id, LayerNorm, LayerScale, Linear, Lrn, Multiply, NetSpec, Norm, Op, Pool, PoolKind, PositionEmbedding, Shape,
    Shortcut, SpaceToDepth, Token,
};

use crate::steps::optimizer;
use support::gpu::{alone, alone_with, assert_recorded};
use support::numerics::{Case, assert_close, assert_near, cpu, cuda, cuda_with, magnitude, noise, on_reference};

/// Returns convolutions like the first layers of the catalogue: kernel sizes that are multiples of the stride and
/// others, unequal pads, unequal strides, trailing pixels that no filter reaches, bias and ReLU.
fn convolutions() -> Vec<(Conv, Shape)> {
    let conv = |out, kernel: usize| Conv::new(out, kernel);
    vec![
        (conv(16, 7).stride(2).pad(3), Shape::image(3, 32, 28)),
        (conv(8, 11).stride(4).pad(2), Shape::image(3, 35, 31)),
        (conv(24, 3).stride(2), Shape::image(3, 13, 14)),
        (conv(8, 4).stride(4).bias(0.0), Shape::image(3, 16, 20)),
        (conv(5, 5).stride(3).pads([2, 0, 1, 4]).bias(0.1).relu(), Shape::image(1, 17, 11)),
        (Conv { kernel: [3, 2], stride: [1, 2], ..conv(8, 1) }.pads([1, 0, 0, 1]).relu(), Shape::image(4, 6, 9)),
        (conv(8, 2).stride(2), Shape::image(2, 2, 2)),
    ]
}

/// Plans the operation of a case for training.
fn planned<B: Backend>(backend: &B, case: &Case) -> Box<dyn Planned<B>> {
    let shapes = [&[case.shape], &case.others[..]].concat();
    let x: Vec<TensorDesc> = shapes.iter().map(|shape| backend.input(case.n, *shape)).collect();
    let alone = PlanRequest::alone("case", &case.op, &shapes, &x);
    backend.plan(&PlanRequest { wants_dx: !case.first, ..alone }).unwrap_or_else(|e| panic!("{:?}: {e}", case.op))
}

fn is_folded(cuda: &Cuda, case: &Case) -> bool {
    planned(cuda, case).implementation().ends_with(", folded")
}

#[test]
fn folded_convolutions_are_the_references() {
    let _alone = alone();
    // TF32 can hold every bf16 value
    for (precision, round) in [
        (Precision::Bf16, (|v| bf16::from_f32(v).to_f32()) as fn(f32) -> f32),
        (Precision::F16, |v| f16::from_f32(v).to_f32()),
        (Precision::F32, |v| bf16::from_f32(v).to_f32()),
    ] {
        let cuda = cuda_with(Settings { precision, allow_tf32: true, ..Settings::default() });
        for (k, (conv, shape)) in (0..).zip(convolutions()) {
            let case = Case { first: true, ..Case::random(Op::Conv(conv), 3, shape, 60 + k) };
            let mut case = case.clear_of_corners();
            let factors = case.x.iter_mut().chain(&mut case.params).chain(&mut case.dy).flatten();
            factors.for_each(|v| *v = round(*v));
            assert!(is_folded(&cuda, &case), "{:?}", case.op);
            let (got, want) = (case.run(&cuda, 0, false), on_reference(&case));
            let close = |of: &str, got: &[f32], want: &[f32]| {
                let what = format!("{:?} of {shape} in {precision:?}: {of}", case.op);
                assert_close(&what, got, want, 2f64.powi(-8) * magnitude(want));
            };
            close("y", &got.y, &want.y);
            got.dparams.iter().zip(&want.dparams).for_each(|(g, w)| close("dparams", g, w));
        }
    }
}

/// Trains a network whose first layer is folded and returns the loss of each step. The weight gradient of each step
/// changes the filter of the next.
fn losses<B: Backend>(backend: B) -> Vec<f64> {
    let (rows, shape) = (4, Shape::image(3, 14, 14));
    let mut net = NetSpec::new("folded", shape);
    let x = net.add("conv", Conv::new(16, 5).stride(2).pad(2).bias(0.0).relu(), net.image());
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Linear::new(4), x);
    let mut graph = Graph::new(backend, net, rows, Purpose::Train { bucket_bytes: usize::MAX }, 5).unwrap();
    let mut optimizer = optimizer(&graph, &OptimizerSpec::sgd(0.0, false, 0.0));
    let images = noise(rows * shape.elems(), 7, 1.0);
    let step = |_| {
        let batch = Batch { images: Input::Values(&images), labels: &[0, 1, 2, 3], ids: &[0, 1, 2, 3], epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / rows as f32 };
        let sums = graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap();
        assert!(optimizer.step(&mut graph, 0.1, None).unwrap().finite);
        sums.loss / rows as f64
    };
    (0..6).map(step).collect()
}

#[test]
fn steps_follow_each_other_as_on_the_cpu() {
    let (_alone, cuda) = alone_with(Precision::Bf16);
    let (got, want) = (losses(cuda), losses(cpu(1)));
    assert!(want[5] < 0.9 * want[0], "the loss does not fall: {want:?}");
    got.iter().zip(&want).for_each(|(got, want)| assert_near("loss", *got, *want, 1e-2));
}

/// A convolution is not folded if the image's gradient is needed, if its stride is 1, if it has many input channels, or in f32.
#[test]
fn other_convolutions_are_not_folded() {
    let _alone = alone();
    let case = |first, conv: Conv, channels| Case {
        first,
        ..Case::random(Op::Conv(conv), 2, Shape::image(channels, 12, 12), 1)
    };
    let strided = || Conv::new(8, 3).stride(2);
    let narrow = cuda(Precision::Bf16);
    assert!(is_folded(&narrow, &case(true, strided(), 3)));
    assert!(!is_folded(&narrow, &case(false, strided(), 3)));
    assert!(!is_folded(&narrow, &case(true, Conv::new(8, 3), 3)));
    assert!(!is_folded(&narrow, &case(true, Conv::new(8, 1).stride(2), 3)));
    assert!(!is_folded(&narrow, &case(true, strided().dilation(2), 3)));
    assert!(!is_folded(&narrow, &case(true, strided(), 8)));
    let wide = cuda(Precision::F32);
    assert!(!is_folded(&wide, &case(true, strided(), 3)));
}

const ROWS: usize = 2;

/// Returns what a training plan for the operation keeps. `wants_dx` says whether the gradient of the first input is needed.
fn keeps<B: Backend>(backend: &B, op: impl Into<Op>, shape: Shape, wants_dx: bool) -> Keeps {
    planned(backend, &Case { first: !wants_dx, ..Case::random(op.into(), ROWS, shape, 1) }).tensors_for_backward()
}

#[test]
fn operations_keep_what_backward_reads() {
    let (_alone, cuda) = alone_with(Precision::Bf16);
    let image = Shape::image(8, 6, 6);
    let input_and_output = Keeps { inputs: 1, output: true };
    let conv = || Conv::new(16, 3).pad(1).bias(0.1);
    let cases = [
        (Keeps::INPUT, Op::from(conv())),
        (input_and_output, Op::from(conv().relu())),
        (Keeps::INPUT, Op::from(Norm::new().relu())),
        (Keeps::INPUT, Op::from(Norm::new().residual().relu())),
        (Keeps::INPUT, Op::from(LayerNorm::new())),
        (Keeps::INPUT, Op::from(GroupNorm::new(2))),
        (Keeps::INPUT, Op::from(LayerScale(0.1))),
        (Keeps::INPUT, Op::from(Lrn { radius: 2, k: 1.0, alpha: 0.2, beta: 0.75 })),
        (Keeps::INPUTS, Op::from(Multiply)),
        (Keeps::NOTHING, Op::from(Add)),
        (Keeps::NOTHING, Op::from(Concat)),
        (Keeps::NOTHING, Op::from(Channels { first: 2, count: 4, groups: 1 })),
        (Keeps::NOTHING, Op::from(Dropout(0.4))),
        (Keeps::NOTHING, Op::from(DropPath(0.4))),
        (Keeps::NOTHING, Op::from(ClassToken)),
        (Keeps::NOTHING, Op::from(PositionEmbedding::default())),
        (Keeps::NOTHING, Op::from(Token(3))),
        (Keeps::NOTHING, Op::from(Pool::new(PoolKind::Max, 3, 2))),
        (Keeps::NOTHING, Op::from(Pool::global())),
        (Keeps::NOTHING, Op::from(BlurPool::default())),
        (Keeps::NOTHING, Op::from(SpaceToDepth(2))),
        (Keeps::NOTHING, Op::from(Shortcut { out_channels: 12, stride: 2 })),
        (Keeps::NOTHING, Op::from(Activation::Identity)),
        (Keeps::NOTHING, Op::from(Activation::Scale(0.5))),
        (Keeps::OUTPUT, Op::from(Activation::Relu)),
        (Keeps::OUTPUT, Op::from(Activation::Sigmoid)),
        (Keeps::INPUT, Op::from(Activation::Silu)),
        (Keeps::INPUT, Op::from(Activation::Gelu)),
    ];
    for (expected, op) in cases {
        assert_eq!(keeps(&cuda, op.clone(), image, true), expected, "{op:?}");
        assert_eq!(keeps(&cpu(1), op.clone(), image, true), expected, "{op:?} on a CPU");
    }
    let tokens = Shape::image(24, 4, 4);
    assert_eq!(keeps(&cuda, Attention::new(2), tokens, true), input_and_output);
    // layers with few weights have a kernel of their own for the gradients
    for outputs in [10, 300] {
        let vector = Shape::vector(100);
        assert_eq!(keeps(&cuda, Linear::new(outputs), vector, true), Keeps::INPUT, "{outputs}");
        assert_eq!(keeps(&cuda, Linear::new(outputs).relu(), vector, true), input_and_output, "{outputs}");
    }
    // a folded convolution reads its folded copy of the input
    let photograph = Shape::image(3, 32, 28);
    assert_eq!(keeps(&cuda, Conv::new(16, 7).stride(2).pad(3), photograph, false), Keeps::NOTHING);
    assert_eq!(keeps(&cuda, Conv::new(16, 7).stride(2).pad(3).relu(), photograph, false), Keeps::OUTPUT);
}

#[test]
fn a_residual_block_keeps_only_what_backward_reads() {
    let _alone = alone();
    let mut net = NetSpec::new("block", Shape::image(16, 8, 8));
    let x = net.add("embed", Conv::new(16, 3).pad(1), net.image());
    let y = net.add("norm", LayerNorm::new(), x);
    let y = net.add("fc1", Conv::new(64, 1).bias(0.0), y);
    let y = net.add("gelu", Activation::Gelu, y);
    let y = net.add("drop", Dropout(0.1), y);
    let y = net.add("fc2", Conv::new(16, 1).bias(0.0), y);
    let y = net.add("scale", LayerScale(0.1), y);
    let y = net.add("path", DropPath(0.1), y);
    let x = net.join("add", Op::from(Add), &[x, y]);
    let x = net.add("pool", Pool::global(), x);
    net.add("head", Linear::new(10), x);
    let (facts, memory, _) = estimate::memory(&cuda(Precision::F32), &net, ROWS).unwrap();
    // Kept tensors, with the input's size as unit: the input and the output of `embed`, `norm` and `fc2` have size 1.
    // The outputs of `fc1` and `drop` have size 4. The output of `pool`, the scores and their gradient are vectors.
    assert_eq!(memory.activation_elems, ROWS * (12 * net.input.elems() + 16 + 10 + 10));
    let all: Vec<NodeFacts> =
        facts.iter().map(|facts| NodeFacts { tensors_for_backward: Keeps::ALL, ..*facts }).collect();
    let before = Memory::train(&net, ROWS * net.input.elems(), &all);
    assert!(memory.elems < before.elems, "{} of {}", memory.elems, before.elems);
}

const SHORTCUT_ROWS: usize = 3;

/// Returns an image size with which the layers of stride 2 meet odd sides: 9 x 14, then 5 x 7.
fn input() -> Shape {
    Shape::image(3, 9, 14)
}

/// Creates a network of two blocks that halve height and width. The norm before the first block has no residual, the
/// norm before the second has one.
///
/// If `apart` is set, a layer that changes nothing separates each shortcut from the following norm.
fn net(widths: [usize; 3], apart: bool) -> NetSpec {
    let mut net = NetSpec::new("blocks", input());
    let conv = |channels, stride| Op::Conv(Conv::new(channels, 3).pad(1).stride(stride));
    let x = net.add("conv1", conv(widths[0], 1), net.image());
    let mut x = net.add("bn1", Norm::new().relu(), x);
    for width in &widths[1..] {
        x = block(&mut net, x, *width, apart);
    }
    let x = net.add("pool", Pool::global(), x);
    net.add("fc", Linear::new(4), x);
    net
}

fn block(net: &mut NetSpec, x: Id, width: usize, apart: bool) -> Id {
    let name = |layer: &str| format!("block{width}.{layer}");
    let y = net.add(&name("conv1"), Conv::new(width, 3).pad(1).stride(2), x);
    let y = net.add(&name("bn1"), Norm::new().relu(), y);
    let y = net.add(&name("conv2"), Conv::new(width, 3).pad(1), y);
    let mut x = net.add(&name("shortcut"), Shortcut { out_channels: width, stride: 2 }, x);
    if apart {
        x = net.add(&name("nothing"), Op::from(Dropout(0.0)), x);
    }
    net.join(&name("bn2"), Norm::new().residual().relu(), &[y, x])
}

struct Ran {
    /// For each pass, the bits of all gradients, followed by the bits of the scores in evaluation.
    bits: Vec<u32>,
    /// The implementation of each shortcut.
    shortcuts: Vec<String>,
}

fn run(precision: Precision, widths: [usize; 3], apart: bool) -> Ran {
    let net = net(widths, apart);
    let shortcuts: Vec<usize> = (0..net.nodes.len()).filter(|&n| net.nodes[n].name.ends_with("shortcut")).collect();
    let mut graph =
        Graph::new(cuda(precision), net, SHORTCUT_ROWS, Purpose::Train { bucket_bytes: usize::MAX }, 5).unwrap();
    let mut bits = Vec::new();
    // the last batch of an epoch is smaller
    for (pass, rows) in [SHORTCUT_ROWS, SHORTCUT_ROWS, SHORTCUT_ROWS, SHORTCUT_ROWS - 1].into_iter().enumerate() {
        let images = noise(rows * input().elems(), pass as u64, 1.0);
        let batch =
            Batch { images: Input::Values(&images), labels: &[1, 3, 0][..rows], ids: &[0, 1, 2][..rows], epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / rows as f32 };
        let sums = graph.train::<Error>(batch, loss, MicroBatch { worker: 0, last: true }, None).unwrap();
        assert!(sums.loss.is_finite());
        let gradients = (0..graph.params().len()).flat_map(|i| graph.gradient(i).unwrap());
        bits.extend(gradients.map(f32::to_bits));
        bits.extend(graph.scores(&images, rows).unwrap().into_iter().map(f32::to_bits));
    }
    assert_recorded(graph.backend());
    Ran { bits, shortcuts: shortcuts.into_iter().map(|node| graph.implementation(node)).collect() }
}

#[test]
fn a_shortcut_that_is_read_through_changes_no_bit() {
    let _alone = alone();
    for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
        let widths = [16, 32, 64];
        let (through, apart) = (run(precision, widths, false), run(precision, widths, true));
        assert_eq!(apart.shortcuts, ["own"; 2], "{precision}");
        assert!(through.shortcuts.iter().all(|how| how.contains("fused into")), "{:?}", through.shortcuts);
        let differ = through.bits.iter().zip(&apart.bits).filter(|(a, b)| a != b).count();
        assert_eq!((differ, through.bits.len()), (0, apart.bits.len()), "{precision}");
    }
}

#[test]
fn shortcuts_with_incomplete_16_byte_packs_have_a_pass_of_their_own() {
    let _alone = alone();
    for (precision, widths) in [(Precision::F32, [6, 12, 24]), (Precision::Bf16, [8, 16, 24])] {
        let ran = run(precision, widths, false);
        assert_eq!(ran.shortcuts, ["own"; 2], "{precision}, {widths:?}");
    }
}

/// If batch norms do the work of a shortcut, its output is never computed and cannot be read.
#[test]
fn the_output_of_a_shortcut_without_a_pass_is_refused() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let net = net([16, 32, 64], false);
    let node = net.nodes.iter().position(|node| node.name == "block32.shortcut").unwrap();
    let graph = Graph::new(cuda, net, SHORTCUT_ROWS, Purpose::Infer, 5).unwrap();
    let said = graph.output(node + 1).unwrap_err().to_string();
    assert!(said.contains("block32.shortcut") && said.contains("not stored"), "{said}");
    assert!(graph.output(node + 2).is_ok());
}
