//! Updates that read 16-bit gradients directly from the pass give the same bits as updates of gradients that were first converted to f32.

use backend::cuda::{Cuda, Precision};
use backend::{Error, Input, Queue};
use engine::optim::{Adam, Lars, OptimizerKind, OptimizerSpec, RmsProp, Sgd};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use net::{Conv, Linear, NetSpec, Norm, Pool, Shape};

use crate::steps::{bits, optimizer};
use support::gpu::{alone, assert_recorded};
use support::numerics::{cuda, noise};

const ROWS: usize = 2;
const STEPS: usize = 5;

fn input() -> Shape {
    Shape::image(3, 8, 8)
}

/// Creates a network with several buckets. The convolutions have 16-bit gradients, the other parameters f32 gradients.
fn graph(cuda: Cuda) -> Graph<Cuda> {
    let mut net = NetSpec::new("mixed", input());
    let x = net.add("conv1", Conv::new(16, 3).pad(1).bias(0.1), net.image());
    let x = net.add("conv2", Conv::new(24, 3).pad(1), x);
    let x = net.add("bn", Norm::new().relu(), x);
    let x = net.add("conv3", Conv::new(5, 1), x);
    let x = net.add("pool", Pool::global(), x);
    net.add("fc", Linear::new(4), x);
    Graph::new(cuda, net, ROWS, Purpose::Train { bucket_bytes: 10_000 }, 5).unwrap()
}

struct Ran {
    /// The bits of parameters and slots after each step.
    bits: Vec<Vec<u32>>,
    launches: u64,
}

fn run(precision: Precision, spec: &OptimizerSpec, with_pass: bool) -> Ran {
    let mut graph = graph(cuda(precision));
    assert!(graph.layout().buckets.len() > 1);
    let mut optimizer = optimizer(&graph, spec);
    let mut ran = Ran { bits: Vec::new(), launches: 0 };
    for step in 0..STEPS {
        let images = noise(ROWS * input().elems(), step as u64, 1.0);
        let batch = Batch { images: Input::Values(&images), labels: &[1, 3], ids: &[0, 1], epoch: 0 };
        let (loss, rate) = (Loss { smoothing: 0.0, scale: 1.0 / ROWS as f32 }, 0.05 / (step + 1) as f64);
        let before = graph.backend().launches();
        if with_pass {
            optimizer.step_with_pass(&mut graph, batch, loss, rate, None).unwrap();
            graph.sums().unwrap();
        } else {
            graph.train::<Error>(batch, loss, MicroBatch { worker: 0, last: true }, None).unwrap();
            optimizer.step(&mut graph, rate, None).unwrap();
        }
        ran.launches = graph.backend().launches() - before;
        let slots = optimizer.slots().flat_map(|(_, slot)| bits(&graph, slot));
        ran.bits.push(bits(&graph, graph.weights()).into_iter().chain(slots).collect());
    }
    assert_recorded(graph.backend());
    ran
}

fn specs() -> Vec<OptimizerSpec> {
    let base = |kind| OptimizerSpec { weight_decay: 1e-2, ..OptimizerSpec::new(kind) };
    let no_decay = Some(vec!["*.bias".into(), "bn.*".into()]);
    vec![
        OptimizerSpec { no_decay, ..base(OptimizerKind::Sgd(Sgd::new(0.9, true))) },
        base(OptimizerKind::Adam(Adam::default())),
        base(OptimizerKind::RmsProp(RmsProp::default())),
        // the next three need the gradients in f32 before the update: to clip them or to compute norms
        OptimizerSpec { clip_value: Some(1e-3), ..base(OptimizerKind::Sgd(Sgd::new(0.9, false))) },
        OptimizerSpec { clip_norm: Some(1e-2), ..base(OptimizerKind::Sgd(Sgd::new(0.9, false))) },
        base(OptimizerKind::Lars(Lars { eta: Some(0.02), ..Lars::default() })),
    ]
}

#[test]
fn an_update_that_reads_gradients_in_16_bits_changes_no_bit() {
    let _alone = alone();
    for precision in [Precision::Bf16, Precision::F16, Precision::F32] {
        for spec in specs() {
            let (raw, cast) = (run(precision, &spec, true), run(precision, &spec, false));
            for (step, (got, want)) in raw.bits.iter().zip(&cast.bits).enumerate() {
                assert!(got == want, "{precision}, {spec:?}: step {step} differs");
            }
            assert!(raw.bits.windows(2).all(|pair| pair[0] != pair[1]), "{precision}, {spec:?}: no change");
            // with `step_with_pass`, a step needs one upload less. With bf16 it also needs no conversions to f32,
            // unless the update needs f32 gradients
            let casts = u64::from(precision == Precision::Bf16 && spec_updates_only(&spec)) * CASTS;
            assert_eq!(cast.launches - raw.launches, 1 + casts, "{precision}, {spec:?}");
        }
    }
}

/// Number of buckets with a convolution. Every such bucket needs a conversion.
const CASTS: u64 = 2;

fn spec_updates_only(spec: &OptimizerSpec) -> bool {
    spec.clip_value.is_none() && spec.clip_norm.is_none() && !matches!(spec.kind, OptimizerKind::Lars(_))
}
