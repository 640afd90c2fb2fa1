//! What a training step on one GPU costs. The number of kernels, copies and fills: each costs a few microseconds regardless of its size,
//! which dominates in small networks. And the number of bytes that the plan counts, compared with what the passes must read and write.

use backend::cuda::{Cuda, Precision};
use backend::{Backend, Error, Input, LossForm, Objective, Queue, Teaching, Traffic};
use engine::optim::OptimizerSpec;
use engine::{Batch, Graph, Loss, MicroBatch, Purpose, TrafficShare};
use net::{Conv, Linear, NetSpec, Op, Shape, models};

use crate::steps::optimizer;
use support::emulator;
use support::gpu::{alone, alone_with};
use support::numerics::{cuda, noise};

const ROWS: usize = 2;
const STEPS: usize = 6;

/// Returns the number of launches in each of the first steps of a network on 32x32 images, enqueued as in training on one rank.
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

/// A teacher and its student read the same images, so these are copied to the GPU once per step.
#[test]
fn images_of_teacher_and_student_are_copied_once() {
    let _alone = alone();
    let (shape, classes) = (Shape::image(8, 4, 4), 10);
    let net = |width: usize| {
        let mut net = NetSpec::new("small", shape);
        let x = net.image();
        let x = net.add("conv", Op::Conv(Conv::new(width, 3).pad(1)), x);
        net.add("fc", Op::Linear(Linear::new(classes)), x);
        net
    };
    let purpose = Purpose::Train { bucket_bytes: usize::MAX };
    let mut graph = Graph::new(cuda(Precision::F32), net(8), ROWS, purpose, 1).unwrap();
    let teacher = graph.inference_graph(net(16), ROWS).unwrap();
    let teaching = Teaching { share: 1.0, temperature: 2.0 };
    graph.train_against(Objective { form: LossForm::Softmax, gamma: 0.0, teacher: Some(teaching) });
    graph.teach(teacher).unwrap();
    let mut images = noise(ROWS * shape.elems(), 1, 1.0);
    graph.backend().hold(&images).unwrap();
    // runs a step and returns its loss and its number of copies to the GPU
    let mut step = |images: Input<'_>| {
        let weight_and_first_class = |i: usize| f32::from(u8::from(i % (1 + classes) < 2));
        *graph.targets_mut().expect("targets") = (0..ROWS * (1 + classes)).map(weight_and_first_class).collect();
        let copies = || emulator::calls("cuMemcpyHtoDAsync");
        let before = copies();
        let batch = Batch { images, labels: &[0, 0], ids: &[0, 1], epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 0.5 };
        let sums = graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap();
        (sums.loss, copies().zip(before).map(|(now, before)| now - before))
    };
    // the first steps also copy constants
    for _ in 0..2 {
        step(Input::Held(ROWS));
        step(Input::Values(&images));
    }
    let (held, sent) = (step(Input::Held(ROWS)), step(Input::Values(&images)));
    assert_eq!(sent.0, held.0, "the loss depends on how the images reach the GPU");
    let more = sent.1.zip(held.1).map(|(sent, held)| sent - held);
    assert!(more.is_none_or(|copies| copies == 1), "{more:?} copies of the images");
    // the next step must not use the copy of this step
    images.iter_mut().for_each(|value| *value = -*value);
    assert_ne!(step(Input::Values(&images)).0, sent.0, "other images at the same address");
}

const IMAGES: usize = 2;

#[test]
fn batch_norm_of_resnet50_moves_what_its_passes_need() {
    let (_alone, cuda) = alone_with(Precision::Bf16);
    let input = models::input("resnet50").expect("a size");
    let net = models::build("resnet50", input, 1000).expect("a network");
    let shapes = net.shapes().expect("shapes");
    // elements per image of the norms without and with a residual; only the output of the last block has a single reader,
    // and so a single gradient
    let (mut plain, mut residual, mut last) = (0, 0, 0);
    for (node, shape) in net.nodes.iter().zip(&shapes[1..]) {
        match &node.op {
            Op::Norm(norm) if norm.residual => (residual, last) = (residual + shape.elems(), shape.elems()),
            Op::Norm(_) => plain += shape.elems(),
            _ => {}
        }
    }
    let graph = Graph::new(cuda, net, IMAGES, Purpose::Train { bucket_bytes: 4 << 20 }, 1).expect("a graph");
    let shares = graph.traffic();
    let of = |kind: &str| shares.iter().find(|share: &&TrafficShare| share.kind == kind).expect("a kind").traffic;
    // elements per pass: forward reads x twice and the residual, and writes y. Backward reads x and dy twice and writes
    // dx. With a residual, backward also writes the residual's gradient and reads a second gradient of y and the mask.
    let forward = 3 * plain + 4 * residual;
    let backward = 5 * plain + 6 * residual + (residual - last);
    let mask = residual / 8;
    let want = Traffic { forward: IMAGES * (2 * forward + mask), backward: IMAGES * (2 * backward + mask) };
    assert_eq!(of("norm"), want);
    let gigabytes = |bytes: usize| (bytes / IMAGES * 256) as f64 / 1e9;
    let now = gigabytes(want.forward + want.backward);
    println!(
        "batch norm of 256 images moves {now:.2} GB; {:.2} with y in the mask's place",
        now + gigabytes(IMAGES * (2 * residual - 2 * mask))
    );
    assert!((54.2..54.4).contains(&now), "{now} GB for 256 images");
}
