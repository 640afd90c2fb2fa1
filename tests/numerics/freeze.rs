//! Frozen parameters, on every backend. The gradients of the other parameters do not change, frozen batch normalisation
//! uses running statistics, and the optimizer does not change frozen parameters.

use std::collections::BTreeSet;

use backend::cuda::Precision;
use backend::reference::Reference;
use backend::{Backend, Buffer, Error, LossSums};
use engine::optim::{Optimizer, OptimizerSpec};
use engine::{Graph, Loss, MicroBatch, Purpose};
use net::{
    Activation, Concat, Conv, Flatten, GroupNorm, LayerNorm, LayerScale, Linear, Multiply, NetSpec, Norm, Op, Pool,
    PoolKind, Shape, Shortcut,
};

use crate::training::{self, Rows, check_slopes, everywhere, named_gradients as gradients, statistics};
use support::numerics::{self, assert_close, cpu, magnitude, noise};

const IMAGE: Shape = Shape::image(3, 8, 8);
const CLASSES: usize = 5;
const ROWS: usize = 6;

/// Returns a network with a residual block between convolutions, including convolutions that use Winograd kernels.
fn net(smooth: bool) -> NetSpec {
    let mut net = NetSpec::new("block", IMAGE);
    let norm = Norm { relu: !smooth, ..Norm::new() };
    let conv = |c| Op::Conv(Conv::new(c, 3).pad(1).bias(0.1));
    let x = net.add("c1", conv(16), net.image());
    let x = net.add("n1", Op::Norm(norm.clone()), x);
    let x = net.add("t1", Activation::Tanh, x);
    let y = net.add("c2", conv(16), x);
    let x = net.join("n2", Op::Norm(norm.residual()), &[y, x]);
    let y = net.add("c3", Op::Conv(Conv::new(32, 3).pad(1).stride(2)), x);
    let x = net.add("s", Op::Shortcut(Shortcut { out_channels: 32, stride: 2 }), x);
    let x = net.join("n3", Op::Norm(Norm { relu: !smooth, ..Norm::new() }.residual()), &[y, x]);
    let x = net.add("p", Op::Pool(Pool::new(PoolKind::Avg, 2, 2)), x);
    let x = net.add("flatten", Flatten, x);
    let fc1 = Linear::new(9);
    let x = net.add("fc1", Op::Linear(if smooth { fc1 } else { fc1.relu() }), x);
    net.add("fc2", Op::Linear(Linear::new(CLASSES)), x);
    net
}

/// Returns a network with branches, products, concatenations, an auxiliary classifier, and the operations with
/// parameters that `net` does not have.
fn branches() -> NetSpec {
    let mut net = NetSpec::new("branches", IMAGE);
    let x = net.add("c1", Op::Conv(Conv::new(16, 3).pad(1)), net.image());
    let y = net.add("dw", Op::Conv(Conv::new(16, 3).pad(1).groups(16).bias(0.1)), x);
    let y = net.add("ln", LayerNorm::new(), y);
    let y = net.add("ls", LayerScale(0.5), y);
    let z = net.add("spread", Op::Conv(Conv::new(12, 3).pad(1).groups(4).bias(0.1)), x);
    let z = net.add("gn", GroupNorm::new(3), z);
    let x = net.join("cat", Concat, &[x, y, z]);
    let y = net.add("squeeze", Pool::global(), x);
    let y = net.add("se", Op::Conv(Conv::new(44, 1).bias(0.5)), y);
    let x = net.join("product", Multiply, &[x, y]);
    let y = net.add("aux.flatten", Flatten, x);
    let y = net.add("aux.fc", Linear::new(CLASSES), y);
    net.head(y, 0.3);
    let x = net.add("pool", Pool::global(), x);
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Linear::new(CLASSES), x);
    net
}

fn frozen(smooth: bool, layers: &[&str]) -> NetSpec {
    freeze(net(smooth), layers)
}

fn freeze(mut net: NetSpec, layers: &[&str]) -> NetSpec {
    let names = net.tensors().unwrap().parameters.into_iter().map(|(name, _)| name);
    net.frozen = names.filter(|name| layers.iter().any(|layer| name.starts_with(&format!("{layer}.")))).collect();
    assert!(net.frozen.len() >= layers.len());
    net
}

fn graph<B: Backend>(backend: B, net: NetSpec) -> Graph<B> {
    let mut graph =
        Graph::new(backend, net, ROWS, Purpose::Train { bucket_bytes: 64 }, 7).unwrap_or_else(|e| panic!("{e}"));
    let running: Vec<f32> = noise(graph.running().len(), 5, 0.4).iter().map(|v| v + 0.7).collect();
    graph.running_mut().copy_from_slice(&running);
    graph
}

/// Runs one pass that hands over finished buckets, and puts them back. Returns the sums and the numbers of the buckets.
fn pass<B: Backend>(graph: &mut Graph<B>) -> (LossSums, Vec<usize>) {
    let rows = Rows::new(IMAGE, 0.0, CLASSES, ROWS);
    let mut given = Vec::new();
    let mut take = |bucket: usize, buffers: Vec<B::Buf>| {
        given.push((bucket, buffers));
        Ok::<(), Error>(())
    };
    let loss = Loss { smoothing: 0.1, scale: 1.0 / ROWS as f32 };
    let sums = graph.train(rows.all(), loss, MicroBatch::ONLY, Some(&mut take)).unwrap_or_else(|e| panic!("{e}"));
    let buckets = given.iter().map(|one| one.0).collect();
    given.into_iter().for_each(|(bucket, buffers)| graph.put(bucket, buffers));
    (sums, buckets)
}

/// Checks that trained parameters have the expected gradients and that the gradients of frozen parameters are still zero.
#[track_caller]
fn assert_gradients<B: Backend>(what: &str, graph: &Graph<B>, want: &[(String, Vec<f32>)], frozen: &BTreeSet<String>) {
    for ((name, got), (other, want)) in gradients(graph).iter().zip(want) {
        assert_eq!(name, other);
        match frozen.contains(name) {
            true => assert!(got.iter().all(|g| *g == 0.0), "{what}: {name} is frozen but has a gradient"),
            false => assert_close(&format!("{what}: {name}"), got, want, 1e-4 * magnitude(want) + 1e-6),
        }
    }
}

/// Sets of layers to freeze, without batch normalisation: at the beginning, in the middle and at the end.
const PLAIN: [&[&str]; 5] = [&["c1"], &["c2"], &["c1", "c2", "c3"], &["fc1", "c3"], &["fc2"]];

fn check_plain<B: Backend>(backend: impl Fn() -> B, name: &str) {
    check(backend, name, &net(false), &PLAIN);
}

/// Sets of layers of `branches` to freeze: single operations with parameters, one branch, a stem, each classifier, and
/// all layers except one classifier.
const BRANCHES: [&[&str]; 11] = [
    &["dw"],
    &["ln"],
    &["ls"],
    &["spread"],
    &["gn"],
    &["se"],
    &["dw", "ln", "ls"],
    &["c1", "dw", "spread", "gn"],
    &["aux"],
    &["fc"],
    &["c1", "dw", "ln", "ls", "spread", "gn", "se", "fc"],
];

fn check_branches<B: Backend>(backend: impl Fn() -> B, name: &str) {
    check(backend, name, &branches(), &BRANCHES);
}

fn check<B: Backend>(backend: impl Fn() -> B, name: &str, net: &NetSpec, cases: &[&[&str]]) {
    let mut whole = graph(backend(), net.clone());
    let (want, _) = pass(&mut whole);
    let want_gradients = gradients(&whole);
    for layers in cases {
        let what = format!("{layers:?} frozen on {name}");
        let net = freeze(net.clone(), layers);
        let mut graph = graph(backend(), net.clone());
        // a device may run the first pass, record the second and replay the others
        for _ in 0..4 {
            let (got, buckets) = pass(&mut graph);
            assert!((got.loss / want.loss - 1.0).abs() < 1e-6, "{what}: {got:?}, expected {want:?}");
            let trained: Vec<usize> = (0..graph.layout().buckets.len()).filter(|c| graph.trains(*c)).collect();
            assert_eq!(buckets, trained, "{what}: each trained bucket must be handed over once and in order");
            assert_gradients(&what, &graph, &want_gradients, &net.frozen);
        }
        // from now on, everything is trained
        graph.set_frozen(false);
        for _ in 0..3 {
            let (_, buckets) = pass(&mut graph);
            assert_eq!(buckets, (0..graph.layout().buckets.len()).collect::<Vec<_>>(), "{what}, later");
            assert_gradients(&format!("{what}, later"), &graph, &want_gradients, &BTreeSet::new());
        }
    }
}

#[test]
fn trained_parameters_get_the_gradients_of_the_whole_network() {
    everywhere!(check_plain);
}

#[test]
fn branches_and_auxiliary_classifiers_may_be_frozen() {
    everywhere!(check_branches);
}

/// Sets of layers to freeze, with batch normalisation. If only `n2` is frozen, gradients still flow through it to `c1` and `c2`.
const NORMS: [&[&str]; 3] = [&["n2"], &["n1", "n2", "n3"], &["c1", "n1", "c2", "n2"]];

fn check_norms<B: Backend>(backend: impl Fn() -> B, name: &str) {
    for layers in NORMS {
        let what = format!("{layers:?} frozen on {name}");
        let net = frozen(false, layers);
        let mut oracle = graph(Reference, net.clone());
        let (want, _) = pass(&mut oracle);
        let mut graph = graph(backend(), net.clone());
        for _ in 0..4 {
            let (got, _) = pass(&mut graph);
            assert!((got.loss / want.loss - 1.0).abs() < 1e-5, "{what}: {got:?}, expected {want:?}");
            assert_gradients(&what, &graph, &gradients(&oracle), &net.frozen);
        }
        let (_, counts) = statistics(&graph);
        for (place, count) in graph.norms().iter().zip(&counts) {
            let held = layers.contains(&graph.net().nodes[place.node].name.as_str());
            assert_eq!(*count == 0.0, held, "{what}: statistics of node {}", place.node);
        }
    }
}

#[test]
fn frozen_batch_normalisation_uses_running_statistics() {
    everywhere!(check_norms);
}

/// Checks the reference itself: the training loss equals the evaluation loss, and the gradients are its slopes.
#[test]
fn gradients_through_frozen_normalisation_are_the_slopes_of_the_loss() {
    let mut graph = graph(Reference, frozen(true, &["n1", "n2", "n3"]));
    let (first, _) = pass(&mut graph);
    let gradients = gradients(&graph);
    let rows = Rows::new(IMAGE, 0.0, CLASSES, ROWS);
    let evaluate = |graph: &mut Graph<Reference>| graph.evaluate(rows.all(), 0.1).unwrap().loss;
    assert!((evaluate(&mut graph) / first.loss - 1.0).abs() < 1e-6);
    let trained: Vec<_> = gradients.into_iter().filter(|(name, _)| !name.starts_with('n')).collect();
    check_slopes(&mut graph, &trained, 12, |graph| evaluate(graph) / ROWS as f64);
}

/// If only part of a norm's parameters is frozen, the norm still uses batch statistics and trains the rest.
#[test]
fn a_layer_may_be_frozen_in_part() {
    let mut whole = graph(cpu(1), net(false));
    pass(&mut whole);
    let mut part = net(false);
    part.frozen = ["n2.weight", "c2.bias"].map(String::from).into();
    let mut graph = graph(cpu(1), part);
    pass(&mut graph);
    for ((name, got), (_, want)) in gradients(&graph).iter().zip(&gradients(&whole)) {
        assert_close(name, got, want, 1e-5 * magnitude(want) + 1e-7);
    }
    let handed = graph.layout().params.iter().filter(|p| graph.trains(p.slot.bucket)).count();
    assert_eq!(handed, graph.params().len() - 2);
}

fn optimizer<B: Backend>(graph: &Graph<B>, spec: &str) -> Optimizer<B> {
    training::optimizer(graph, &toml::from_str(spec).unwrap())
}

fn parameters<B: Backend>(graph: &Graph<B>) -> Vec<(String, Vec<f32>)> {
    (0..graph.params().len()).map(|i| (graph.params()[i].name.clone(), graph.param(i).unwrap())).collect()
}

/// Returns only the weights. The bias of a convolution before a norm has a gradient that consists of rounding errors.
fn weights<B: Backend>(graph: &Graph<B>) -> Vec<(String, Vec<f32>)> {
    parameters(graph).into_iter().filter(|(name, _)| name.ends_with(".weight")).collect()
}

/// Returns how far one step moves each parameter.
fn moved<B: Backend>(backend: B, spec: &str) -> Vec<(String, Vec<f32>)> {
    let mut graph = graph(backend, net(false));
    let mut optimizer = optimizer(&graph, spec);
    let before = parameters(&graph);
    pass(&mut graph);
    optimizer.step(&mut graph, 0.1, None).unwrap();
    differences(&graph, before)
}

/// Returns how far each parameter is from its value before.
fn differences<B: Backend>(graph: &Graph<B>, before: Vec<(String, Vec<f32>)>) -> Vec<(String, Vec<f32>)> {
    let after = parameters(graph).into_iter().zip(before);
    after.map(|((name, a), (_, b))| (name, a.iter().zip(&b).map(|(a, b)| a - b).collect())).collect()
}

const GROUPS: &str = "[[groups]]\nmatch = [\"fc2.*\"]\nlr = 4\n\
                      [[groups]]\nmatch = [\"fc?.*\", \"c1.weight\"]\nlr = 0.5\nweight_decay = 0.0\n";

fn check_groups<B: Backend>(backend: impl Fn() -> B, name: &str) {
    // with clipping and LARS, the learning rates come from norms, and each group's factor must be applied to these rates, too
    for kind in ["kind = \"sgd\"", "kind = \"sgd\"\nclip_norm = 0.05", "kind = \"adam\"", "kind = \"lars\"\neta = 0.1"]
    {
        let plain = moved(backend(), &format!("{kind}\n"));
        let grouped = moved(backend(), &format!("{kind}\n{GROUPS}"));
        for ((name_, want), (_, got)) in plain.iter().zip(&grouped) {
            let factor = match name_.as_str() {
                "fc2.weight" | "fc2.bias" => 4.0,
                "fc1.weight" | "fc1.bias" | "c1.weight" => 0.5,
                _ => 1.0,
            };
            let want: Vec<f32> = want.iter().map(|w| factor * w).collect();
            assert_close(&format!("{kind}, {name_} on {name}"), got, &want, 2e-5 * magnitude(&want) + 2e-7);
        }
    }
}

#[test]
fn groups_have_rates_of_their_own() {
    everywhere!(check_groups);
}

#[test]
fn groups_have_a_weight_decay_of_their_own() {
    let spec: OptimizerSpec =
        toml::from_str(&format!("kind = \"sgd\"\nweight_decay = 0.1\nno_decay = [\"*.bias\"]\n{GROUPS}")).unwrap();
    let decays = ["fc2.weight", "fc2.bias", "fc1.weight", "c2.weight"].map(|name| spec.decay_of(name, &[2, 2]));
    assert_eq!(decays, [0.1, 0.0, 0.0, 0.1]);
}

fn check_frozen_steps<B: Backend>(backend: impl Fn() -> B, name: &str) {
    for kind in ["kind = \"sgd\"\nmomentum = 0.9\nweight_decay = 0.1", "kind = \"sgd\"\nclip_norm = 0.05"] {
        let net = frozen(false, &["c1", "n1", "fc1"]);
        let mut graph = graph(backend(), net.clone());
        let mut optimizer = optimizer(&graph, kind);
        let before = weights(&graph);
        for _ in 0..4 {
            pass(&mut graph);
            let stepped = optimizer.step(&mut graph, 0.1, None).unwrap();
            if let Some(norm) = stepped.grad_norm {
                let trained = gradients(&graph).into_iter().filter(|(name, _)| !net.frozen.contains(name));
                let all: Vec<f32> = trained.flat_map(|(_, g)| g).collect();
                assert!((norm / numerics::norm(&all) - 1.0).abs() < 1e-5, "{name}: norm of the trained parameters");
            }
        }
        for ((what, after), (_, before)) in weights(&graph).iter().zip(&before) {
            assert_eq!(after == before, net.frozen.contains(what), "{what} on {name}, {kind}");
        }
        graph.set_frozen(false);
        for _ in 0..4 {
            pass(&mut graph);
            optimizer.step(&mut graph, 0.1, None).unwrap();
        }
        let still: Vec<_> = weights(&graph).into_iter().zip(before).filter(|(a, b)| a == b).collect();
        assert!(still.is_empty(), "{name}: {still:?}");
    }
}

#[test]
fn frozen_parameters_do_not_move_until_they_are_trained() {
    everywhere!(check_frozen_steps);
}

/// Adam's bias correction counts the steps of each parameter. A parameter that is trained from the fifth step on moves
/// as it would in its first step.
#[test]
fn adam_counts_the_steps_of_late_parameters_from_their_first() {
    let first = |late: bool| {
        let mut graph = graph(cpu(1), if late { frozen(false, &["c1"]) } else { net(false) });
        let mut optimizer = optimizer(&graph, "kind = \"adam\"\n");
        assert!(optimizer.counts_steps());
        if late {
            optimizer.begin_frozen_at(4);
            for _ in 0..4 {
                pass(&mut graph);
                optimizer.step(&mut graph, 0.0, None).unwrap();
            }
            graph.set_frozen(false);
        }
        let before = parameters(&graph);
        pass(&mut graph);
        optimizer.step(&mut graph, 0.01, None).unwrap();
        differences(&graph, before).into_iter().filter(|(name, _)| name.starts_with("c1.")).collect::<Vec<_>>()
    };
    assert_eq!(first(true), first(false));
}

/// In f16 a gradient that is not finite makes the device skip the step. This does not apply to frozen parameters, because
/// their buffers keep older values.
#[test]
fn frozen_gradients_do_not_make_f16_skip_steps() {
    let mut graph = graph(numerics::cuda(Precision::F16), frozen(false, &["c1"]));
    let mut optimizer = optimizer(&graph, "kind = \"sgd\"\n");
    let before = weights(&graph);
    for _ in 0..4 {
        pass(&mut graph);
        let held: Vec<usize> = (0..graph.layout().buckets.len()).filter(|bucket| !graph.trains(*bucket)).collect();
        let (backend, _, gradients) = graph.arenas();
        for bucket in held {
            let buffer = &mut gradients.buckets[bucket];
            backend.upload(&vec![f32::INFINITY; buffer.len()], buffer).unwrap();
        }
        optimizer.step(&mut graph, 0.1, None).unwrap();
    }
    for ((name, after), (_, before)) in weights(&graph).iter().zip(&before) {
        assert_eq!(after == before, name.starts_with("c1."), "{name}");
    }
}
