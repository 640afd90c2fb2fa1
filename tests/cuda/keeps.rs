//! The tensors that GPUs and CPUs keep for the backward pass. The tests of operations check that backward reads no
//! others, because they pass empty buffers for them.

use backend::cuda::Precision;
use backend::{Backend, Keeps};
use engine::estimate;
use engine::memory::{Memory, NodeFacts};
use net::{
    Activation, Add, Attention, BlurPool, Channels, ClassToken, Concat, Conv, DropPath, Dropout, GroupNorm, LayerNorm,
    LayerScale, Linear, Lrn, Multiply, NetSpec, Norm, Op, Pool, PoolKind, PositionEmbedding, Shape, Shortcut,
    SpaceToDepth, Token,
};

use crate::folds::planned;
use support::gpu::alone;
use support::numerics::{Case, cpu, cuda};

const ROWS: usize = 2;

/// Returns what a training plan for the operation keeps. `wants_dx` says whether the gradient of the first input is
/// needed.
fn keeps<B: Backend>(backend: &B, op: impl Into<Op>, shape: Shape, wants_dx: bool) -> Keeps {
    planned(backend, &Case { first: !wants_dx, ..Case::random(op.into(), ROWS, shape, 1) }).tensors_for_backward()
}

#[test]
fn operations_keep_what_backward_reads() {
    let _alone = alone();
    let cuda = cuda(Precision::Bf16);
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
