//! Tensors stored in bf16 with `precision = "bf16"` on the CPU: which tensors these are, how much memory they take, and
//! that readers convert them correctly.

use backend::cpu::Cpu;
use backend::{Backend, Keeps};
use engine::{Graph, Purpose, estimate};
use net::{Activation, Conv, Flatten, Linear, NetSpec, Norm, Pool, PoolKind, Shape};

use crate::bf16::kinds;
use support::numerics::{assert_close, cpu, magnitude, noise};

const ROWS: usize = 4;

/// Name of a network with a tensor that three layers read in bf16 and whose gradients are summed. It has norms with f32
/// inputs, f32 outputs or both, residuals that are copied for them, and a grouped convolution, which reads f32.
pub const BRANCHED: &str = "branched";

pub fn branched() -> NetSpec {
    let mut net = NetSpec::new(BRANCHED, Shape::image(3, 13, 11));
    let conv = |out, k: usize| Conv::new(out, k).pad(k / 2);
    let x = net.add("stem", conv(24, 3), net.image());
    let x = net.add("stem.bn", Norm::new().relu(), x);
    let branches = ["one", "two", "three"].map(|name| net.add(name, conv(24, 3), x));
    let one = net.add("one.bn", Norm::new(), branches[0]);
    let joined = net.join("join.bn", Norm::new().relu().residual(), &[branches[1], one]);
    let joined = net.join("again.bn", Norm::new().relu().residual(), &[branches[2], joined]);
    let y = net.add("mix", conv(24, 1), joined);
    let y = net.join("mix.bn", Norm::new().relu().residual(), &[y, joined]);
    let grouped = net.add("grouped", conv(24, 3).groups(3), y);
    let y = net.add("grouped.bn", Norm::new(), grouped);
    let y = net.add("last", conv(24, 1), y);
    let y = net.join("last.bn", Norm::new().relu().residual(), &[y, grouped]);
    let pooled = net.add("pool", Pool::new(PoolKind::Max, 2, 2), y);
    let y = net.add("end", conv(24, 1), pooled);
    let y = net.join("end.bn", Norm::new().relu().residual(), &[y, pooled]);
    let y = net.add("narrow", conv(8, 1), y);
    let y = net.add("flatten", Flatten, y);
    net.add("fc", Linear::new(10), y);
    net
}

/// Tensors between convolutions and norms take half the memory, tensors with other readers stay in f32. With the
/// channels-last layout of AMX tiles, all tensors stay in f32.
#[test]
fn tensors_between_convolutions_and_norms_are_in_bf16() {
    let (net, whole) = (branched(), cpu(1));
    let shapes = net.shapes().unwrap();
    let place = |name: &str| net.nodes.iter().position(|node| node.name == name).unwrap();
    let elems = |backend: &Cpu, name: &str| {
        let (facts, ..) = estimate::memory(backend, &net, ROWS).unwrap_or_else(|e| panic!("{e}"));
        facts[place(name)].elems
    };
    let narrows = |name: &str, backend: &Cpu| {
        // channels last has no padding channels
        let (blocked, exact) = (elems(&whole, name), ROWS * shapes[place(name) + 1].elems());
        let last = backend.describe().contains("channels last");
        let wide = [blocked, if last { exact } else { blocked }];
        match elems(backend, name) {
            got if wide.contains(&got) => false,
            got => wide.contains(&(2 * got)) || panic!("{name}: {got} of {wide:?} words"),
        }
    };
    for (kind, make) in kinds() {
        let backend = make(1).unwrap();
        let in_blocks = !backend.describe().contains("channels last");
        for name in ["stem.bn", "one.bn", "join.bn", "again.bn", "grouped.bn", "end.bn"] {
            assert_eq!(narrows(name, &backend), in_blocks, "{name}, {kind}");
        }
        for name in ["one", "two", "three", "mix", "grouped", "last", "end"] {
            // if products are computed in f32, results are in f32 too
            assert_eq!(narrows(name, &backend), in_blocks && kind == "bf16", "{name}, {kind}");
        }
        for name in ["mix.bn", "last.bn", "pool", "narrow", "fc"] {
            assert!(!narrows(name, &backend), "{name}, {kind}");
        }
    }
}

/// A layer's backward pass reads its own rounded copy of an f32 input, so the memory plan does not keep the input.
#[test]
fn f32_inputs_of_bf16_layers_are_not_kept() {
    let mut net = NetSpec::new("mlp", Shape::image(16, 8, 8));
    let x = net.add("fc1", Conv::new(64, 1), net.image());
    let x = net.add("gelu", Activation::Gelu, x);
    let x = net.add("fc2", Conv::new(16, 1), x);
    let x = net.add("flatten", Flatten, x);
    net.add("head", Linear::new(10), x);
    let fc2 = net.nodes.iter().position(|node| node.name == "fc2").unwrap();
    let (facts, whole, _) = estimate::memory(&cpu(1), &net, ROWS).unwrap();
    assert_eq!(facts[fc2].tensors_for_backward, Keeps::INPUT);
    for (kind, make) in kinds() {
        let (facts, memory, _) = estimate::memory(&make(1).unwrap(), &net, ROWS).unwrap();
        let purpose = Purpose::Train { bucket_bytes: usize::MAX };
        let graph = Graph::new(make(1).unwrap(), net.clone(), ROWS, purpose, 3).unwrap();
        let primitives = graph.implementation(fc2);
        assert!(primitives.starts_with("bf16:"), "{kind}: {primitives}");
        assert_eq!(facts[fc2].tensors_for_backward, Keeps::NOTHING, "{kind}: {primitives}");
        assert!(memory.elems < whole.elems, "{kind}: {} and {} words", memory.elems, whole.elems);
    }
}

/// Returns the scores of a network in inference on noise.
fn inferred(backend: Cpu, net: NetSpec) -> Vec<f32> {
    let images = noise(ROWS * net.input.elems(), 5, 1.0);
    let mut graph = Graph::new(backend, net, ROWS, Purpose::Infer, 3).unwrap_or_else(|e| panic!("{e}"));
    graph.scores(&images, ROWS).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns a network with a convolution that oneDNN 2.x cannot pad itself, after a norm of the image. Its input is
/// converted back to f32.
fn padded_by_hand() -> NetSpec {
    let mut net = NetSpec::new("padded", Shape::image(3, 31, 27));
    let x = net.add("norm", Norm::new(), net.image());
    let x = net.add("wide", Conv::new(16, 11).pad(2).stride(4), x);
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Linear::new(10), x);
    net
}

#[test]
fn bf16_tensors_are_read_correctly() {
    for net in [branched as fn() -> NetSpec, padded_by_hand] {
        let want = inferred(cpu(2), net());
        for (kind, make) in kinds() {
            let got = inferred(make(2).unwrap(), net());
            assert_close(&format!("{}, {kind}", net().name), &got, &want, 2e-2 * magnitude(&want));
        }
    }
}

/// The image itself is a residual here. It is in plain layout and must be copied to channel blocks.
#[test]
fn an_image_may_be_a_residual() {
    for (channels, reads) in [(3, "conv"), (16, "conv"), (16, "pool")] {
        let net = || {
            let mut net = NetSpec::new("residual", Shape::image(channels, 8, 8));
            let image = net.image();
            let x = net.add("one", Conv::new(channels, 3).pad(1), image);
            let x = net.join("bn", Norm::new().relu().residual(), &[x, image]);
            let x = match reads {
                "conv" => net.add("two", Conv::new(16, 3), x),
                _ => net.add("two", Pool::new(PoolKind::Max, 2, 2), x),
            };
            let x = net.add("flatten", Flatten, x);
            net.add("fc", Linear::new(10), x);
            net
        };
        let want = inferred(cpu(2), net());
        for (kind, make) in kinds() {
            let got = inferred(make(2).unwrap(), net());
            assert_close(&format!("{channels} channels, {reads}, {kind}"), &got, &want, 2e-2 * magnitude(&want));
        }
    }
}
