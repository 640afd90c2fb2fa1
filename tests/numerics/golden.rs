//! Whole networks compared with PyTorch: ten steps of SGD on one batch (`golden/nets.json`). `golden/README.md` explains the tolerances.

use std::collections::BTreeMap;

use backend::cuda::Precision;
use backend::reference::Reference;
use backend::{Backend, Error, Input};
use engine::optim::{Optimizer, OptimizerSpec};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use net::{Dropout, NetSpec, Op, Shape, models};
use serde::Deserialize;

use crate::training::{optimizer, statistics};
use support::numerics::{Example, Formula, assert_close, assert_near, blend, cpu, cuda, golden, magnitude, norm};

#[derive(Deserialize)]
struct Nets {
    noise_example: Example,
    batch: usize,
    images: Formula,
    labels: Vec<u32>,
    #[serde(default)]
    label_smoothing: f32,
    sgd: Numbers,
    networks: Vec<Net>,
}

#[derive(Deserialize)]
struct Numbers {
    lr: f64,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
}

#[derive(Deserialize)]
struct Net {
    name: String,
    image_shape: [usize; 3],
    params: Vec<Named>,
    losses_float64: Vec<f64>,
    logits_float64: Vec<f64>,
    gradient_norms_float64: BTreeMap<String, f64>,
    /// Some activations are so near zero that rounding in float32 may change their sign before ReLU. These are the
    /// gradient norms for each combination of such signs.
    #[serde(default)]
    gradient_norms_sided_float64: Vec<BTreeMap<String, f64>>,
    parameter_norms_after_float64: BTreeMap<String, f64>,
    eval_loss_after_float64: f64,
    statistics_after_1_float64: Option<BTreeMap<String, Vec<f64>>>,
    statistics_after_10_float64: Option<BTreeMap<String, Vec<f64>>>,
    /// Relative errors of PyTorch's own float32 results.
    #[serde(default)]
    float32_error: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    formula: Formula,
}

impl Nets {
    fn net(&self, name: &str) -> &Net {
        self.networks.iter().find(|n| n.name == name).unwrap_or_else(|| panic!("no network {name} in nets.json"))
    }
}

impl Net {
    fn spec(&self) -> NetSpec {
        let [c, h, w] = self.image_shape;
        let mut net = models::build(&self.name, Shape::image(c, h, w), 10).expect("a name of the catalogue");
        for node in &mut net.nodes {
            if let Op::Dropout(Dropout(p)) = &mut node.op {
                *p = 0.0;
            }
        }
        net
    }

    /// Returns the tolerance of later steps. Small errors of batch norm grow about tenfold in three steps. On AVX2, 5x5
    /// convolutions use Winograd's F(2x2, 5x5), which is less exact by a digit. This error grows to 1.3e-5 in ten steps.
    fn later(&self) -> f64 {
        if self.statistics_after_1_float64.is_some() { 1e-3 } else { 1e-4 }
    }
}

/// A graph in training with its optimizer and the single batch.
struct Run<'a, B: Backend> {
    what: String,
    graph: Graph<B>,
    optimizer: Optimizer<B>,
    file: &'a Nets,
    /// The recorded parameters, in the graph's order. PyTorch lists a projection after its branch, but the graph runs it
    /// before the end of the branch.
    params: Vec<&'a Named>,
    images: Vec<f32>,
    ids: Vec<u64>,
}

impl<'a, B: Backend> Run<'a, B> {
    fn new(backend: B, file: &'a Nets, net: &'a Net) -> Self {
        let what = format!("{} on {}", net.name, backend.describe());
        // small buckets, so that every network has more than one
        let purpose = Purpose::Train { bucket_bytes: 1 << 14 };
        let mut graph =
            Graph::new(backend, net.spec(), file.batch, purpose, 1).unwrap_or_else(|e| panic!("{what}: {e}"));
        let find = |name: &str| net.params.iter().find(|p| p.name == name);
        let missing = |name: &str| panic!("{what}: PyTorch has no parameter {name}");
        let params: Vec<&Named> =
            graph.params().iter().map(|p| find(&p.name).unwrap_or_else(|| missing(&p.name))).collect();
        assert_eq!(params.len(), net.params.len(), "{what}: parameters");
        for (i, p) in params.iter().enumerate() {
            assert_eq!(graph.params()[i].spec.shape, p.formula.shape, "{what}: shape of {}", p.name);
            graph.set_param(i, &p.formula.noise()).unwrap();
        }
        let Numbers { momentum, nesterov, weight_decay, .. } = file.sgd;
        let optimizer = optimizer(&graph, &OptimizerSpec::sgd(momentum, nesterov, weight_decay));
        let images = file.images.noise_n(file.batch * graph.net().input.elems());
        Self { what, graph, optimizer, file, params, images, ids: (0..file.batch as u64).collect() }
    }

    fn gradients(&mut self) -> f64 {
        let n = self.file.batch;
        let loss = Loss { smoothing: self.file.label_smoothing, scale: 1.0 / n as f32 };
        let batch = Batch { images: Input::Values(&self.images), labels: &self.file.labels, ids: &self.ids, epoch: 0 };
        let sums = self.graph.train::<Error>(batch, loss, MicroBatch::ONLY, None);
        let sums = sums.unwrap_or_else(|e| panic!("{}: {e}", self.what));
        assert_eq!(sums.count, n as u64);
        sums.loss / n as f64
    }

    fn update(&mut self) {
        assert!(self.optimizer.step(&mut self.graph, self.file.sgd.lr, None).unwrap().finite, "{}", self.what);
        let places = self.graph.norms().to_vec();
        let (sums, counts) = statistics(&self.graph);
        for (place, count) in places.iter().zip(counts) {
            let range = place.offset..place.offset + 2 * place.channels;
            let running = &mut self.graph.running_mut()[range.clone()];
            let after = blend(running, &sums[range], count, 0.1);
            running.copy_from_slice(&after);
        }
    }

    fn check_first_step(&self, net: &Net) {
        let logits = self.graph.output(self.graph.net().nodes.len()).unwrap();
        let tolerance = 1e-5 * magnitude(&net.logits_float64);
        assert_close(&format!("{}: scores", self.what), &logits, &net.logits_float64, tolerance);
        let relative = net.float32_error.get("gradient_norms").map_or(1e-4, |strayed| f64::max(1e-4, 4.0 * strayed));
        let got: Vec<f64> = (0..self.params.len()).map(|i| norm(&self.graph.gradient(i).unwrap())).collect();
        let strayed = |norms: &BTreeMap<String, f64>| {
            let each = self.params.iter().zip(&got).map(|(p, got)| (got / norms[&p.name] - 1.0).abs());
            each.fold(0.0, f64::max)
        };
        let sides = std::iter::once(&net.gradient_norms_float64).chain(&net.gradient_norms_sided_float64);
        let wanted = sides.min_by(|a, b| strayed(a).total_cmp(&strayed(b))).expect("float64's own");
        for (p, got) in self.params.iter().zip(&got) {
            let what = format!("{}: norm of the gradient of {}", self.what, p.name);
            assert_near(&what, *got, wanted[&p.name], relative);
        }
    }

    fn check_statistics(&self, after: usize, wanted: &BTreeMap<String, Vec<f64>>, relative: f64) {
        for (name, want) in wanted {
            let (layer, field) = name.rsplit_once('.').expect("a layer and a field");
            let nodes = &self.graph.net().nodes;
            let place = self.graph.norms().iter().find(|p| nodes[p.node].name == layer).expect("a batch norm");
            let (means, variances) =
                self.graph.running()[place.offset..place.offset + 2 * place.channels].split_at(place.channels);
            let got = if field == "running_mean" { means } else { variances };
            let what = format!("{}: {name} after {after} steps", self.what);
            assert_close(&what, got, want, relative * magnitude(want));
        }
    }

    /// Runs this number of steps. After the last recorded step, compares all recorded values.
    fn check(&mut self, net: &Net, steps: usize) {
        for (step, &want) in net.losses_float64.iter().enumerate().take(steps) {
            let loss = self.gradients();
            let relative = if step == 0 { 1e-5 } else { net.later() };
            assert_near(&format!("{}: loss of step {}", self.what, step + 1), loss, want, relative);
            if step == 0 {
                self.check_first_step(net);
            }
            self.update();
            if let (0, Some(statistics)) = (step, &net.statistics_after_1_float64) {
                self.check_statistics(1, statistics, 1e-5);
            }
        }
        if steps < net.losses_float64.len() {
            return;
        }
        for (i, p) in self.params.iter().enumerate() {
            let got = norm(&self.graph.param(i).unwrap());
            let what = format!("{}: norm of {} at the end", self.what, p.name);
            assert_near(&what, got, net.parameter_norms_after_float64[&p.name], 10.0 * net.later());
        }
        if let Some(statistics) = &net.statistics_after_10_float64 {
            self.check_statistics(10, statistics, 2e-3);
        }
        let batch = Batch { images: Input::Values(&self.images), labels: &self.file.labels, ids: &self.ids, epoch: 0 };
        let sums = self.graph.evaluate(batch, self.file.label_smoothing).unwrap();
        let mean = sums.loss / sums.count as f64;
        assert_near(
            &format!("{}: loss in evaluation", self.what),
            mean,
            net.eval_loss_after_float64,
            2.0 * net.later(),
        );
    }
}

const NETS: [&str; 4] = ["lenet", "lenet-caffe", "cifarnet", "resnet20"];

/// This is a single test, so that two thread pools do not compete for the cores.
#[test]
fn networks_learn_as_in_pytorch() {
    let file: Nets = golden("nets.json");
    file.noise_example.check(Formula::noise_n);
    for name in NETS {
        for threads in [1, 2] {
            Run::new(cpu(threads), &file, file.net(name)).check(file.net(name), 10);
        }
    }
}

#[test]
fn networks_learn_as_in_pytorch_on_the_gpu() {
    let file: Nets = golden("nets.json");
    for name in NETS {
        Run::new(cuda(Precision::F32), &file, file.net(name)).check(file.net(name), 10);
    }
}

/// Compares torchvision's networks with the same weights and label smoothing. AlexNet with smaller images tests the adaptive pool.
#[test]
fn imagenet_networks_equal_torchvisions() {
    let file: Nets = golden("imagenet.json");
    file.noise_example.check(Formula::noise_n);
    assert!(file.label_smoothing > 0.0 && file.networks.len() == 4);
    for net in &file.networks {
        Run::new(cpu(2), &file, net).check(net, 2);
    }
}

#[test]
#[cfg_attr(not(feature = "real-gpu"), ignore = "too large for the emulated GPU")]
fn imagenet_networks_equal_torchvisions_on_the_gpu() {
    let file: Nets = golden("imagenet.json");
    for net in &file.networks {
        Run::new(cuda(Precision::F32), &file, net).check(net, 2);
    }
}

/// The reference backend's plain loops are slow, so this test runs only the first steps of the smallest network.
#[test]
fn the_reference_learns_as_in_pytorch() {
    let file: Nets = golden("nets.json");
    let net = file.net("lenet-caffe");
    Run::new(Reference, &file, net).check(net, 2);
}
