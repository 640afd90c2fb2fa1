//! Helpers of the tests that train whole graphs.

use std::ops::Range;

use backend::{Backend, Input};
use engine::optim::{Optimizer, OptimizerSpec};
use engine::{Batch, Graph};
use net::Shape;

use support::numerics::{assert_close, magnitude, noise};

/// Calls `$f(make, name)` for each backend. `make()` creates the backend.
macro_rules! everywhere {
    ($f:ident) => {
        $f(|| backend::reference::Reference, "reference");
        $f(|| support::numerics::cpu(1), "cpu, 1 thread");
        $f(|| support::numerics::cpu(2), "cpu, 2 threads");
        $f(|| support::numerics::cuda(backend::cuda::Precision::F32), "cuda");
    };
}
pub(crate) use everywhere;

pub struct Rows {
    elems: usize,
    pub images: Vec<f32>,
    pub labels: Vec<u32>,
    ids: Vec<u64>,
}

impl Rows {
    /// Creates `n` images of noise around `mean` with labels of `classes` classes.
    pub fn new(image: Shape, mean: f32, classes: usize, n: usize) -> Self {
        let images = noise(n * image.elems(), 1, 1.0).into_iter().map(|v| v + mean).collect();
        let labels = (0..n as u32).map(|i| i * 3 % classes as u32).collect();
        Self { elems: image.elems(), images, labels, ids: (500..500 + n as u64).collect() }
    }

    pub fn part(&self, rows: Range<usize>) -> Batch<'_> {
        let images = Input::Values(&self.images[rows.start * self.elems..rows.end * self.elems]);
        Batch { images, labels: &self.labels[rows.clone()], ids: &self.ids[rows], epoch: 3 }
    }

    pub fn all(&self) -> Batch<'_> {
        self.part(0..self.labels.len())
    }
}

pub fn gradients<B: Backend>(graph: &Graph<B>) -> Vec<Vec<f32>> {
    (0..graph.params().len()).map(|i| graph.gradient(i).unwrap()).collect()
}

pub fn named_gradients<B: Backend>(graph: &Graph<B>) -> Vec<(String, Vec<f32>)> {
    graph.params().iter().map(|p| p.name.clone()).zip(gradients(graph)).collect()
}

/// Returns the pooled statistics of the last batch, and the number of values per channel for each batch normalisation.
pub fn statistics<B: Backend>(graph: &Graph<B>) -> (Vec<f64>, Vec<f64>) {
    let (mut sums, mut counts) = (vec![0.0; graph.running().len()], vec![0.0; graph.norms().len()]);
    graph.pool_statistics(&mut sums, &mut counts);
    (sums, counts)
}

pub fn optimizer<B: Backend>(graph: &Graph<B>, spec: &OptimizerSpec) -> Optimizer<B> {
    spec.check().unwrap();
    Optimizer::new(graph, spec).unwrap()
}

/// Compares some elements of each gradient, at most about `most` of a parameter, with differences of the loss.
pub fn check_slopes<B: Backend>(
    graph: &mut Graph<B>,
    gradients: &[(String, Vec<f32>)],
    most: usize,
    loss: impl Fn(&mut Graph<B>) -> f64,
) {
    let step = 1.0 / 128.0;
    for (name, gradient) in gradients {
        let p = graph.params().iter().position(|p| p.name == *name).expect("a parameter");
        let start = graph.param(p).unwrap();
        for i in (0..start.len()).step_by(start.len().div_ceil(most)) {
            let mut side = |step: f32| {
                let mut moved = start.clone();
                moved[i] += step;
                graph.set_param(p, &moved).unwrap();
                (loss(graph), f64::from(moved[i]))
            };
            let ((above, to), (below, from)) = (side(step), side(-step));
            let slope = (above - below) / (to - from);
            assert_close(&format!("{name}[{i}]"), &gradient[i..=i], &[slope], 2e-3 * magnitude(gradient) + 2e-4);
        }
        graph.set_param(p, &start).unwrap();
    }
}
