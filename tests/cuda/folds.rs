//! Strided convolutions over the network's input, which are computed on a folded image, compared with the reference on
//! the same rounded inputs.

use backend::cuda::{Cuda, Precision, Settings};
use backend::{Backend, Error, Input, PlanRequest, Planned, TensorDesc};
use engine::optim::OptimizerSpec;
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use half::{bf16, f16};
use net::{Conv, Flatten, Linear, NetSpec, Op, Shape};

use crate::steps::optimizer;
use support::gpu::alone;
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
pub fn planned<B: Backend>(backend: &B, case: &Case) -> Box<dyn Planned<B>> {
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
            let mut case = Case { first: true, ..Case::random(Op::Conv(conv), 3, shape, 60 + k) };
            // set the gradient to zero where rounding could move a value to the other side of ReLU
            let before = on_reference(&Case { dy: None, ..case.without_relu() }).y;
            case.dy.iter_mut().flatten().zip(before).filter(|(_, y)| y.abs() < 0.05).for_each(|(dy, _)| *dy = 0.0);
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
    let _alone = alone();
    let cuda = cuda(Precision::Bf16);
    let (got, want) = (losses(cuda), losses(cpu(1)));
    assert!(want[5] < 0.9 * want[0], "the loss does not fall: {want:?}");
    got.iter().zip(&want).for_each(|(got, want)| assert_near("loss", *got, *want, 1e-2));
}

/// A convolution is not folded if the image's gradient is needed, if its stride is 1, if it has many input channels, or
/// in f32.
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
