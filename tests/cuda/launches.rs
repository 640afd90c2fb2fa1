//! The number of kernels, copies and fills in a training step on one GPU. Each costs a few microseconds regardless of
//! its size, which dominates in small networks. The number does not depend on sizes.

use backend::cuda::{Cuda, Precision};
use backend::{Backend, Input, Queue};
use engine::optim::OptimizerSpec;
use engine::{Batch, Graph, Loss, Purpose};
use net::{Shape, models};

use crate::steps::optimizer;
use support::emulator;
use support::gpu::alone;
use support::numerics::{cuda, noise};

const ROWS: usize = 2;
const STEPS: usize = 6;

/// Returns the number of launches in each of the first steps of a network on 32x32 images, enqueued as in training on
/// one rank.
fn launches(model: &str) -> Vec<u64> {
    let cuda = cuda(Precision::Bf16);
    let shape = Shape::image(3, 32, 32);
    let net = models::build(model, shape, 10).expect("a network of the catalogue");
    let mut graph = Graph::new(cuda, net, ROWS, Purpose::Train { bucket_bytes: usize::MAX }, 1).unwrap();
    let mut optimizer = optimizer(&graph, &OptimizerSpec::sgd(0.9, false, 1e-4));
    let images = noise(ROWS * shape.elems(), 1, 1.0);
    let queue = |graph: &Graph<Cuda>| graph.backend().queue().unwrap().launches();
    graph.backend().hold(&images).unwrap();
    let mut counts = Vec::new();
    for step in 0..STEPS {
        let before = queue(&graph);
        let batch = Batch { images: Input::Held(ROWS), labels: &[3, 7], ids: &[0, 1], epoch: step as u32 };
        let loss = Loss { smoothing: 0.0, scale: 0.5 };
        optimizer.step_with_pass(&mut graph, batch, loss, 1e-3 / (1.0 + step as f64), None).unwrap();
        if step > 0 {
            assert!(graph.sums().unwrap().loss.is_finite());
        }
        counts.push(queue(&graph) - before);
    }
    assert!(graph.sums().unwrap().loss.is_finite());
    counts
}

#[test]
fn a_step_needs_at_most_this_many_launches() {
    let _alone = alone();
    for (model, most) in [("resnet20", 139), ("resnet50", 385)] {
        // there is no count before the first network has loaded the emulated libraries
        let before = emulator::calls("cuGraphLaunch").unwrap_or(0);
        let counts = launches(model);
        let replayed = emulator::calls("cuGraphLaunch").map(|now| now - before);
        println!("{model}: {counts:?}");
        let last = counts[STEPS - 1];
        // one call of the real cuDNN may launch more than one kernel; on an H100, a step of ResNet-50 has 388 launches
        let most = if emulator::real_gpu() { most * 11 / 10 } else { most };
        assert!(last <= most, "{model}: {last} launches, expected at most {most}: {counts:?}");
        // steps alternate between two buffers of sums; the first step with each buffer is enqueued, and each later step
        // launches a CUDA graph
        assert!(replayed.is_none_or(|graphs| graphs == STEPS as u64 - 2), "{replayed:?}");
    }
}
