//! Auxiliary classifiers: their losses affect the gradients according to their weights, and nothing else. Also tests
//! distillation with a teacher network, on every backend.

use backend::cuda::Precision;
use backend::reference::Reference;
use backend::{Backend, Error, Input, LossForm, Objective, Teaching};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use net::{Activation, Conv, Flatten, Id, Linear, NetSpec, Op, Pool, Shape};

use crate::training::{gradients, named_gradients};
use support::numerics::{self, assert_close, cpu, cuda, magnitude, noise};
use support::remote::Remote;

const IMAGE: Shape = Shape::image(3, 8, 8);
const CLASSES: usize = 5;
const ROWS: usize = 4;
const LABELS: [u32; ROWS] = [0, 3, 1, 4];

/// Adds a trunk that both classifiers read. Its layers have the same names in all networks.
fn trunk(net: &mut NetSpec) -> Id {
    net.add("trunk", Conv::new(6, 3).pad(1).relu(), net.image())
}

fn classifier(net: &mut NetSpec, name: &str, x: Id) -> Id {
    let x = net.add(&format!("{name}.conv"), Conv::new(7, 3), x);
    let x = net.add(&format!("{name}.pool"), Pool::global(), x);
    let x = net.add(&format!("{name}.flatten"), Flatten, x);
    net.add(&format!("{name}.fc"), Linear::new(CLASSES), x)
}

/// Returns the trunk with its auxiliary classifier, the main one, or both.
fn net(auxiliary: Option<f32>, main: bool) -> NetSpec {
    let mut net = NetSpec::new("heads", IMAGE);
    let x = trunk(&mut net);
    if let Some(weight) = auxiliary {
        let scores = classifier(&mut net, "aux", x);
        if main {
            net.head(scores, weight);
        }
    }
    if main {
        classifier(&mut net, "main", x);
    }
    net
}

struct PassResult {
    loss: f64,
    scores: Vec<f32>,
    gradients: Vec<(String, Vec<f32>)>,
}

impl PassResult {
    fn of(&self, name: &str) -> &[f32] {
        &self.gradients.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

/// Sets parameters that depend on their names, then runs one pass.
fn run_pass<B: Backend>(backend: B, net: NetSpec) -> PassResult {
    let mut graph = Graph::new(backend, net, ROWS, Purpose::Train { bucket_bytes: 1 }, 1).unwrap();
    for i in 0..graph.params().len() {
        let param = &graph.params()[i];
        let k = param.name.bytes().fold(7, |k: u64, byte| k * 31 % 99_991 + u64::from(byte));
        let values = noise(param.spec.elems(), k, 0.4);
        graph.set_param(i, &values).unwrap();
    }
    let (images, ids) = (noise(ROWS * IMAGE.elems(), 1, 1.0), [0, 1, 2, 3]);
    let batch = Batch { images: Input::Values(&images), labels: &LABELS, ids: &ids, epoch: 0 };
    let loss = Loss { smoothing: 0.1, scale: 0.25 };
    let sums = graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap();
    let gradients = named_gradients(&graph);
    PassResult { loss: sums.loss, scores: graph.scores(&images, ROWS).unwrap(), gradients }
}

fn check<B: Backend>(open: impl Fn() -> B, name: &str) {
    let weight = 0.3;
    let [both, main, auxiliary] =
        [net(Some(weight), true), net(None, true), net(Some(weight), false)].map(|net| run_pass(open(), net));
    assert!((both.loss - main.loss).abs() < 1e-5 * main.loss, "{name}: the loss must be that of the main classifier");
    assert_close(&format!("{name}: scores"), &both.scores, &main.scores, 1e-5);
    for (parameter, got) in &both.gradients {
        let of = |learned: &PassResult, factor: f64| {
            learned.of(parameter).iter().map(|g| f64::from(*g) * factor).collect::<Vec<_>>()
        };
        let want: Vec<f64> = match parameter.split_once('.').unwrap().0 {
            "main" => of(&main, 1.0),
            "aux" => of(&auxiliary, weight.into()),
            _ => of(&main, 1.0).iter().zip(of(&auxiliary, weight.into())).map(|(a, b)| a + b).collect(),
        };
        assert!(magnitude(&want) > 1e-4, "{name}: {parameter} has no gradient");
        assert_close(&format!("{name}: {parameter}"), got, &want, 1e-5 * magnitude(&want) + 1e-7);
    }
}

#[test]
fn the_losses_of_auxiliary_classifiers_join_by_their_weights() {
    check(|| Reference, "reference");
    check(|| cpu(2), "cpu");
    check(|| numerics::cuda(Precision::F32), "cuda");
}

/// Inference does not compute auxiliary classifiers and reserves no memory for them.
#[test]
fn inference_leaves_auxiliary_classifiers_out() {
    let elems = |net: NetSpec| {
        let graph = Graph::new(Reference, net, ROWS, Purpose::Infer, 1).unwrap();
        graph.memory().elems
    };
    assert_eq!(elems(net(Some(0.3), true)), elems(net(None, true)));
    let mut graph = Graph::new(cpu(1), net(Some(0.3), true), ROWS, Purpose::Infer, 1).unwrap();
    let scores = graph.scores(&noise(ROWS * IMAGE.elems(), 1, 1.0), ROWS).unwrap();
    assert!(scores.len() == ROWS * CLASSES && scores.iter().all(|score| score.is_finite()));
}

/// Scores can come from any layer, for example from SqueezeNet's pool.
#[test]
fn networks_may_end_in_a_pool() {
    let mut net = NetSpec::new("pooled", IMAGE);
    let x = net.add("conv", Conv::new(CLASSES, 3), net.image());
    let x = net.add("pool", Pool::global(), x);
    net.add("flatten", Flatten, x);
    let want = run_pass(Reference, net.clone());
    let gpu = numerics::cuda(Precision::F32);
    for (name, got) in [("cpu", run_pass(cpu(2), net.clone())), ("cuda", run_pass(gpu, net))] {
        assert!((got.loss - want.loss).abs() < 1e-5 * want.loss, "{name}: loss {}, expected {}", got.loss, want.loss);
        assert_close(name, &got.scores, &want.scores, 1e-5);
        assert_close(name, got.of("conv.weight"), want.of("conv.weight"), 1e-5);
    }
}

const LESSON_ROWS: usize = 6;
/// Not a multiple of a channel block, so that a network that ends in pooling pads its scores on a CPU.
const LESSON_CLASSES: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq)]
struct StepResult {
    loss: f64,
    largest: f64,
}

fn student(width: usize) -> NetSpec {
    let mut net = NetSpec::new("small", Shape::image(8, 4, 4));
    let x = net.image();
    let x = net.add("conv", Op::Conv(Conv::new(width, 3).pad(1)), x);
    let x = net.add("relu", Op::Activation(Activation::Relu), x);
    net.add("fc", Op::Linear(Linear::new(LESSON_CLASSES)), x);
    net
}

/// A network that averages each channel of a convolution to a score, as SqueezeNet does.
fn pooled() -> NetSpec {
    let mut net = NetSpec::new("pooled", Shape::image(8, 4, 4));
    let x = net.image();
    let x = net.add("conv", Op::Conv(Conv::new(LESSON_CLASSES, 3).pad(1)), x);
    let x = net.add("pool", Pool::global(), x);
    net.add("flatten", Flatten, x);
    net
}

/// Trains for some steps on different images. The targets are only the scores of the teacher. Equal networks have the same weights.
fn train_steps<B: Backend>(backend: B, student: NetSpec, teacher: NetSpec) -> Vec<StepResult> {
    let purpose = Purpose::Train { bucket_bytes: 1 << 20 };
    let mut graph = Graph::new(backend, student, LESSON_ROWS, purpose, 5).unwrap_or_else(|e| panic!("{e}"));
    let teacher = graph.inference_graph(teacher, LESSON_ROWS).unwrap_or_else(|e| panic!("{e}"));
    let teaching = Teaching { share: 1.0, temperature: 2.0 };
    graph.train_against(Objective { form: LossForm::Softmax, gamma: 0.0, teacher: Some(teaching) });
    graph.teach(teacher).unwrap();
    let (labels, ids) = ([0; LESSON_ROWS], [1, 2, 3, 4, 5, 6]);
    let step = |step: u64| {
        let images = noise(LESSON_ROWS * 128, 3 + step, 1.0);
        let first_two = |i: usize| f32::from(u8::from(i % (1 + LESSON_CLASSES) < 2));
        *graph.targets_mut().expect("targets") = (0..LESSON_ROWS * (1 + LESSON_CLASSES)).map(first_two).collect();
        let batch = Batch { images: Input::Values(&images), labels: &labels, ids: &ids, epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / LESSON_ROWS as f32 };
        let sums = graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap_or_else(|e| panic!("{e}"));
        StepResult { loss: sums.loss, largest: magnitude(&gradients(&graph).concat()) }
    };
    (0..5).map(step).collect()
}

/// A student that equals its teacher has zero loss and gradients. Other students learn as on the reference, also if the
/// scores of student and teacher have different layouts.
#[track_caller]
fn check_teachers<B: Backend>(name: &str, backend: impl Fn() -> B, tolerance: f64) {
    for equal in [student(16), pooled()] {
        for lesson in train_steps(backend(), equal.clone(), equal) {
            assert!(lesson.loss.abs() < tolerance && lesson.largest < tolerance, "{name}: {lesson:?}");
        }
    }
    for (student, teacher) in [(student(8), student(16)), (student(8), pooled()), (pooled(), student(8))] {
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
    check_teachers("reference", || Reference, 1e-6);
    check_teachers("cpu", || cpu(2), 1e-4);
    for (precision, tolerance) in [(Precision::F32, 1e-4), (Precision::Bf16, 0.05)] {
        check_teachers("cuda", || cuda(precision), tolerance);
    }
}

/// A device that replays passes must run the teacher on each step's images.
#[test]
fn replayed_passes_run_the_teacher_again() {
    let expected = train_steps(Reference, student(8), student(16));
    assert!(expected.windows(2).all(|two| two[0].loss != two[1].loss), "{expected:?}");
    assert_eq!(train_steps(Remote::new(), student(8), student(16)), expected);
}

#[test]
fn a_teacher_of_other_classes_or_images_is_refused() {
    let mut graph = Graph::new(cpu(1), student(8), LESSON_ROWS, Purpose::Train { bucket_bytes: 1 << 20 }, 5).unwrap();
    let mut wider = NetSpec::new("wider", Shape::image(8, 4, 4));
    let image = wider.image();
    wider.add("fc", Op::Linear(Linear::new(LESSON_CLASSES + 1)), image);
    let no_targets = graph.inference_graph(student(16), LESSON_ROWS).unwrap();
    assert!(graph.teach(no_targets).unwrap_err().to_string().contains("targets"));
    graph.train_against(Objective::CROSS_ENTROPY);
    let wider = graph.inference_graph(wider, LESSON_ROWS).unwrap();
    let error = graph.teach(wider).unwrap_err().to_string();
    assert!(["10 scores", "11 scores", "8x4x4"].iter().all(|part| error.contains(part)), "{error}");
}
