//! Adaptive gradient clipping by output units compared with timm (`golden/agc.json`), on each backend in its own weight layouts.

use backend::Backend;
use backend::cuda::Precision;
use backend::reference::Reference;
use engine::optim::OptimizerSpec;
use engine::{Graph, Purpose};
use net::{Conv, Linear, NetSpec, Op, Shape};
use serde::Deserialize;

use crate::optim::{all, set_gradients};
use crate::training::optimizer;
use support::numerics::{self, Formula, assert_close, golden};

#[derive(Deserialize)]
struct Golden {
    lr: f64,
    start: Vec<Formula>,
    gradients: Vec<Formula>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    part: f64,
    params_after: Vec<f64>,
}

fn net() -> NetSpec {
    let mut net = NetSpec::new("units", Shape::image(3, 4, 4));
    let x = net.add("conv1", Op::Conv(Conv::new(5, 3).pad(1).bias(0.0)), net.image());
    net.add("fc", Op::Linear(Linear::new(4)), x);
    net
}

fn prepared<B: Backend>(backend: B, file: &Golden) -> Graph<B> {
    let mut graph = Graph::new(backend, net(), 1, Purpose::Train { bucket_bytes: 1 }, 1).unwrap();
    let names: Vec<&str> = graph.params().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["conv1.weight", "conv1.bias", "fc.weight", "fc.bias"]);
    let sizes: Vec<usize> = graph.params().iter().map(|p| p.spec.elems()).collect();
    for (i, size) in sizes.iter().enumerate() {
        let mut w = file.start[i].noise_n(*size);
        if i == 0 {
            w[27..54].fill(0.0);
        }
        graph.set_param(i, &w).unwrap();
    }
    set_gradients(&mut graph, |i| {
        let mut g = file.gradients[i].noise_n(sizes[i]);
        if i == 2 {
            g[160..240].iter_mut().for_each(|g| *g /= 1024.0);
        }
        g
    });
    graph
}

/// Runs one step that clips the units of all parameters for which `limited` returns true.
fn stepped<B: Backend>(backend: B, file: &Golden, part: f64, limited: impl Fn(&str) -> bool) -> Vec<f32> {
    let mut graph = prepared(backend, file);
    let mut optimizer = optimizer(&graph, &OptimizerSpec::sgd(0.0, false, 0.0));
    optimizer.limit_units(&graph, part, limited).unwrap();
    assert!(optimizer.step(&mut graph, file.lr, None).unwrap().finite);
    all(&graph, graph.weights())
}

#[test]
fn units_are_clipped_as_by_timm() {
    let file: Golden = golden("agc.json");
    for run in &file.runs {
        let check = |what: &str, got: Vec<f32>| {
            assert_close(&format!("part {} {what}", run.part), &got, &run.params_after, 1e-6);
        };
        check("reference", stepped(Reference, &file, run.part, |_| true));
        check("one thread", stepped(numerics::cpu(1), &file, run.part, |_| true));
        check("two threads", stepped(numerics::cpu(2), &file, run.part, |_| true));
        check("GPU", stepped(numerics::cuda(Precision::F32), &file, run.part, |_| true));
    }
    let free = stepped(numerics::cpu(1), &file, 0.01, |name| !name.starts_with("fc."));
    let whole = stepped(numerics::cpu(1), &file, 1e9, |_| true);
    let limited = stepped(numerics::cpu(2), &file, 0.01, |_| true);
    assert!(free[..140] == limited[..140] && free[140..] == whole[140..], "fc must not be clipped");
}
