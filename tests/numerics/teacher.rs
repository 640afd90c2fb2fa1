//! Distillation with a teacher network, on every backend.

use backend::cuda::Precision;
use backend::reference::Reference;
use backend::{Backend, Error, Input, LossForm, Objective, Teaching};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use net::{Activation, Conv, Flatten, Linear, NetSpec, Op, Pool, Shape};

use crate::training::gradients;
use support::numerics::{cpu, cuda, magnitude, noise};
use support::remote::Remote;

const ROWS: usize = 6;
/// Not a multiple of a channel block, so that a network that ends in pooling pads its scores on a CPU.
const CLASSES: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq)]
struct StepResult {
    loss: f64,
    largest: f64,
}

fn net(width: usize) -> NetSpec {
    let mut net = NetSpec::new("small", Shape::image(8, 4, 4));
    let x = net.image();
    let x = net.add("conv", Op::Conv(Conv::new(width, 3).pad(1)), x);
    let x = net.add("relu", Op::Activation(Activation::Relu), x);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

/// A network that averages each channel of a convolution to a score, as SqueezeNet does.
fn pooled() -> NetSpec {
    let mut net = NetSpec::new("pooled", Shape::image(8, 4, 4));
    let x = net.image();
    let x = net.add("conv", Op::Conv(Conv::new(CLASSES, 3).pad(1)), x);
    let x = net.add("pool", Pool::global(), x);
    net.add("flatten", Flatten, x);
    net
}

/// Trains for some steps on different images. The targets are only the scores of the teacher. Equal networks have the
/// same weights.
fn train_steps<B: Backend>(backend: B, student: NetSpec, teacher: NetSpec) -> Vec<StepResult> {
    let purpose = Purpose::Train { bucket_bytes: 1 << 20 };
    let mut graph = Graph::new(backend, student, ROWS, purpose, 5).unwrap_or_else(|e| panic!("{e}"));
    let teacher = graph.inference_graph(teacher, ROWS).unwrap_or_else(|e| panic!("{e}"));
    let teaching = Teaching { share: 1.0, temperature: 2.0 };
    graph.train_against(Objective { form: LossForm::Softmax, gamma: 0.0, teacher: Some(teaching) });
    graph.teach(teacher).unwrap();
    let (labels, ids) = ([0; ROWS], [1, 2, 3, 4, 5, 6]);
    let step = |step: u64| {
        let images = noise(ROWS * 128, 3 + step, 1.0);
        let first_two = |i: usize| f32::from(u8::from(i % (1 + CLASSES) < 2));
        *graph.targets_mut().expect("targets") = (0..ROWS * (1 + CLASSES)).map(first_two).collect();
        let batch = Batch { images: Input::Values(&images), labels: &labels, ids: &ids, epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / ROWS as f32 };
        let sums = graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap_or_else(|e| panic!("{e}"));
        StepResult { loss: sums.loss, largest: magnitude(&gradients(&graph).concat()) }
    };
    (0..5).map(step).collect()
}

/// A student that equals its teacher has zero loss and gradients. Other students learn as on the reference, also if the
/// scores of student and teacher have different layouts.
#[track_caller]
fn check<B: Backend>(name: &str, backend: impl Fn() -> B, tolerance: f64) {
    for equal in [net(16), pooled()] {
        for lesson in train_steps(backend(), equal.clone(), equal) {
            assert!(lesson.loss.abs() < tolerance && lesson.largest < tolerance, "{name}: {lesson:?}");
        }
    }
    for (student, teacher) in [(net(8), net(16)), (net(8), pooled()), (pooled(), net(8))] {
        let what = format!("{name}, {} with teacher {}", student.name, teacher.name);
        let expected = train_steps(Reference, student.clone(), teacher.clone());
        for (got, want) in train_steps(backend(), student, teacher).iter().zip(&expected) {
            assert!(want.loss > 0.02 && want.largest > 0.002, "{what}: {want:?}");
            let close = (got.loss - want.loss).abs() < tolerance * (1.0 + want.loss)
                && (got.largest - want.largest).abs() < tolerance;
            assert!(close, "{what}: expected {want:?}, got {got:?}");
        }
    }
}

#[test]
fn teachers_agree_on_every_backend() {
    check("reference", || Reference, 1e-6);
    check("cpu", || cpu(2), 1e-4);
    for (precision, tolerance) in [(Precision::F32, 1e-4), (Precision::Bf16, 0.05)] {
        check("cuda", || cuda(precision), tolerance);
    }
}

/// A device that replays passes must run the teacher on each step's images.
#[test]
fn replayed_passes_run_the_teacher_again() {
    let expected = train_steps(Reference, net(8), net(16));
    assert!(expected.windows(2).all(|two| two[0].loss != two[1].loss), "{expected:?}");
    assert_eq!(train_steps(Remote::new(), net(8), net(16)), expected);
}

#[test]
fn a_teacher_of_other_classes_or_images_is_refused() {
    let mut graph = Graph::new(cpu(1), net(8), ROWS, Purpose::Train { bucket_bytes: 1 << 20 }, 5).unwrap();
    let mut wider = NetSpec::new("wider", Shape::image(8, 4, 4));
    let image = wider.image();
    wider.add("fc", Op::Linear(Linear::new(CLASSES + 1)), image);
    let no_targets = graph.inference_graph(net(16), ROWS).unwrap();
    assert!(graph.teach(no_targets).unwrap_err().to_string().contains("targets"));
    graph.train_against(Objective::CROSS_ENTROPY);
    let wider = graph.inference_graph(wider, ROWS).unwrap();
    let error = graph.teach(wider).unwrap_err().to_string();
    assert!(["10 scores", "11 scores", "8x4x4"].iter().all(|part| error.contains(part)), "{error}");
}
