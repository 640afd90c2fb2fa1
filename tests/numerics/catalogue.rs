//! Compares every network of the catalogue with torchvision, timm or plain PyTorch on the same weights and images:
//! parameter names, scores, loss and gradients, and ten steps of SGD for one network per family.
//!
//! The expected values are in `golden/catalogue.json`. The script next to it defines the weights.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::RefUnwindSafe;

use backend::cuda::Precision;
use backend::{Backend, Error, Input};
use engine::optim::OptimizerSpec;
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use net::{DropPath, Dropout, NetSpec, Op, ParamSpec, Shape, models};
use serde::Deserialize;

use crate::training::optimizer;
use support::numerics::{Example, Formula, cpu, cuda, golden, largest, magnitude};

#[derive(Deserialize)]
struct File {
    noise_example: Example,
    batch: usize,
    images: Formula,
    labels: Vec<u32>,
    sgd: Rule,
    classes: usize,
    networks: Vec<Net>,
}

#[derive(Deserialize)]
struct Rule {
    momentum: f64,
    weight_decay: f64,
}

#[derive(Deserialize)]
struct Net {
    name: String,
    pixels: usize,
    parameters: usize,
    names_fnv: u32,
    /// Variance of the input of each batch norm.
    variances: BTreeMap<String, f64>,
    logits: Vec<f64>,
    /// Learning rate of the networks that train for ten steps. It is so low that rounding errors do not grow.
    #[serde(default)]
    lr: f64,
    losses: Vec<f64>,
    /// Relative change of PyTorch's gradients when its input images change by one part in a million. 0 if the change is small.
    #[serde(default)]
    spread: f64,
    gradients: BTreeMap<String, f64>,
}

/// One network per family. A single pass of it shows most errors in the family.
const QUICK: &[&str] = &[
    "airbench94",
    "cifarnet-slim",
    "wrn16_2",
    "vgg11_bn",
    "googlenet",
    "resnetv2_50",
    "resnext50_32x4d",
    "seresnet50",
    "densenet121",
    "squeezenet1_1",
    "mobilenetv1_100",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "tf_efficientnet_lite0",
    "convnext_tiny",
    "mnasnet0_5",
    "efficientnet_v2_s",
    "regnet_y_400mf",
    "shufflenet_v2_x0_5",
    "vit_b_16",
    "swin_t",
    "swin_v2_t",
    "maxvit_t",
];

fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |h: u32, byte| (h ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn torch(name: &str) -> String {
    net::torch_name(name).unwrap_or(name.into())
}

/// Returns the formula that generates a tensor's test values. `v` is the variance of a batch norm's input. It sets the
/// scale of the running statistics and is not used for parameters.
fn formula(name: &str, shape: &[usize], v: f64) -> Formula {
    let field = name.rsplit('.').next().unwrap_or(name);
    let (scale, shift) = match field {
        "layer_scale" => (0.1, 0.2),
        "weight" | "in_proj_weight" if shape.len() > 1 => {
            ((6.0 / shape[1..].iter().product::<usize>() as f64).sqrt(), 0.0)
        }
        "running_mean" => (0.1 * v.sqrt(), 0.0),
        "running_var" => (0.1 * v, v),
        "weight" => (0.1, 1.0),
        _ => (0.1, 0.0),
    };
    Formula::new(u64::from(fnv(name) % 1_000_003), scale, shift)
}

impl Net {
    fn spec(&self, classes: usize) -> NetSpec {
        let image = Shape::image(3, self.pixels, self.pixels);
        let mut net = models::build(&self.name, image, classes).expect("a name of the catalogue");
        for node in &mut net.nodes {
            match &mut node.op {
                Op::Dropout(Dropout(p)) | Op::DropPath(DropPath(p)) => *p = 0.0,
                _ => {}
            }
        }
        net
    }
}

/// A graph of a network with its recorded weights, and the single batch.
struct Run<'a, B: Backend> {
    file: &'a File,
    net: &'a Net,
    graph: Graph<B>,
    images: Vec<f32>,
    ids: Vec<u64>,
}

impl<'a, B: Backend> Run<'a, B> {
    fn new(backend: B, file: &'a File, net: &'a Net) -> Self {
        let purpose = Purpose::Train { bucket_bytes: 1 << 20 };
        let graph = Graph::new(backend, net.spec(file.classes), file.batch, purpose, 1)
            .unwrap_or_else(|e| panic!("{}: {e}", net.name));
        let images = file.images.noise_n(file.batch * graph.net().input.elems());
        let mut run = Self { file, net, graph, images, ids: (0..file.batch as u64).collect() };
        run.check_names();
        run.fill();
        run
    }

    fn check_names(&self) {
        let count = |spec: &ParamSpec| spec.elems();
        let each: Vec<usize> = self.graph.params().iter().map(|p| count(&p.spec)).collect();
        let name = &self.net.name;
        assert_eq!(each.iter().sum::<usize>(), self.net.parameters, "{name}: parameters");
        let mut names: Vec<String> =
            self.graph.params().iter().zip(each).map(|(p, elems)| format!("{} {elems}", torch(&p.name))).collect();
        names.sort_unstable();
        let same = fnv(&names.join("\n")) == self.net.names_fnv;
        assert!(
            same,
            "{name}: the names differ from those of `python catalogue.py --names {name}`:\n{}",
            names.join("\n")
        );
    }

    fn fill(&mut self) {
        for i in 0..self.graph.params().len() {
            let param = &self.graph.params()[i];
            let values = formula(&torch(&param.name), &param.spec.shape, 1.0).noise_n(param.spec.elems());
            self.graph.set_param(i, &values).unwrap();
        }
        for place in self.graph.norms().to_vec() {
            let layer = self.graph.net().nodes[place.node].name.clone();
            let v = self.net.variances[&layer];
            for (i, field) in ["running_mean", "running_var"].into_iter().enumerate() {
                let at = place.offset + i * place.channels;
                let values = formula(&format!("{layer}.{field}"), &[place.channels], v).noise_n(place.channels);
                self.graph.running_mut()[at..at + place.channels].copy_from_slice(&values);
            }
        }
    }

    fn scores(&mut self) -> f64 {
        let scores = self.graph.scores(&self.images, self.file.batch).unwrap();
        assert_eq!(scores.len(), self.net.logits.len(), "{}: number of scores", self.net.name);
        largest(scores.iter().zip(&self.net.logits).map(|(got, want)| f64::from(*got) - want))
    }

    fn gradients(&mut self) -> f64 {
        let rows = self.file.batch;
        let batch = Batch { images: Input::Values(&self.images), labels: &self.file.labels, ids: &self.ids, epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / rows as f32 };
        let sums = self.graph.train::<Error>(batch, loss, MicroBatch::ONLY, None);
        sums.unwrap_or_else(|e| panic!("{}: {e}", self.net.name)).loss / rows as f64
    }

    /// Compares the gradient norm of each group of parameters with PyTorch's. Returns the largest difference and the name of its group.
    /// Differences are relative to PyTorch's norm or to 1 % of the largest norm, whichever is larger.
    fn gradient_norms(&self) -> (f64, String) {
        let mut squares: BTreeMap<String, f64> = BTreeMap::new();
        for (i, param) in self.graph.params().iter().enumerate() {
            let name = torch(&param.name);
            let (layer, field) = name.rsplit_once('.').unwrap_or(("", &name));
            let parts: Vec<&str> = layer.split('.').take(2).collect();
            let sum: f64 = self.graph.gradient(i).unwrap().iter().map(|g| f64::from(*g).powi(2)).sum();
            *squares.entry(format!("{}.{field}", parts.join("."))).or_default() += sum;
        }
        let groups: BTreeSet<&String> = squares.keys().collect();
        assert_eq!(groups, self.net.gradients.keys().collect(), "{}: groups of parameters", self.net.name);
        let largest = largest(self.net.gradients.values().copied());
        let off = |name: &String, want: f64| (squares[name].sqrt() - want).abs() / want.max(0.01 * largest);
        let all = self.net.gradients.iter().map(|(name, want)| (off(name, *want), name.clone()));
        all.fold((0.0, String::new()), |worst, one| if one.0.is_nan() || one.0 > worst.0 { one } else { worst })
    }

    /// Runs the recorded steps and returns the largest difference from PyTorch's losses, relative to the first loss.
    fn learn(&mut self, first: f64) -> f64 {
        let Rule { momentum, weight_decay } = self.file.sgd;
        let mut optimizer = optimizer(&self.graph, &OptimizerSpec::sgd(momentum, false, weight_decay));
        let (mut loss, mut differences) = (first, Vec::new());
        for (step, want) in self.net.losses.iter().enumerate() {
            if step > 0 {
                optimizer.step(&mut self.graph, self.net.lr, None).unwrap();
                loss = self.gradients();
            }
            differences.push((loss - want) / self.net.losses[0]);
        }
        largest(differences.into_iter())
    }

    /// Compares scores, loss, gradients and the losses of SGD steps with PyTorch's. If `haste` is set, skips the SGD steps.
    fn check(&mut self, haste: bool) {
        let scores = self.scores();
        let loss = self.gradients();
        let (gradients, where_) = self.gradient_norms();
        let first = (loss / self.net.losses[0] - 1.0).abs();
        let losses = if haste { first } else { self.learn(loss) };
        println!(
            "{:<22} scores {scores:.1e} of {:.2}, loss {first:.1e}, gradients {gradients:.1e} ({where_}), {} step(s) {losses:.1e}",
            self.net.name,
            magnitude(&self.net.logits),
            if haste { 1 } else { self.net.losses.len() },
        );
        let name = &self.net.name;
        assert!(scores < 1e-4, "{name}: scores differ by {scores}");
        assert!(first < 1e-3, "{name}: the relative difference of the loss is {first}");
        assert!(
            gradients < f64::max(1e-2, 2.0 * self.net.spread),
            "{name}: the relative difference of the gradient norm of {where_} is {gradients}"
        );
        assert!(losses < 2e-2, "{name}: the losses of the steps differ by {losses}, relative to the first");
    }
}

fn file() -> File {
    let file: File = golden("catalogue.json");
    file.noise_example.check(Formula::noise_n);
    file
}

/// This is a single test, so that two thread pools do not compete for the cores.
#[test]
fn a_network_of_each_family_equals_the_original() {
    let file = file();
    for name in QUICK {
        let net = file.networks.iter().find(|net| net.name == *name).unwrap_or_else(|| panic!("no {name} recorded"));
        Run::new(cpu(2), &file, net).check(true);
    }
}

/// Calls `check` for every recorded network, or for those in the environment variable NETWORKS=name,name.
fn check_networks(check: impl Fn(&File, &Net) + RefUnwindSafe) {
    let file = file();
    let wanted = std::env::var("NETWORKS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').filter(|name| !name.is_empty()).collect();
    // a failing network does not stop the test of the others
    let fails = |net: &&Net| std::panic::catch_unwind(|| check(&file, net)).is_err();
    let chosen = file.networks.iter().filter(|net| wanted.is_empty() || wanted.contains(&net.name.as_str()));
    let failed: Vec<&str> = chosen.filter(fails).map(|net| net.name.as_str()).collect();
    assert!(failed.is_empty(), "{failed:?} failed; see the messages above");
}

#[test]
#[ignore = "minutes, and gigabytes of memory: make test-networks"]
fn every_network_equals_the_original() {
    check_networks(|file, net| Run::new(cpu(2), file, net).check(false));
}

#[test]
#[ignore = "too large for the emulated GPU: tests/gpu/workloads.sh on a machine with a GPU"]
fn every_network_equals_the_original_on_a_gpu() {
    check_networks(|file, net| Run::new(cuda(Precision::F32), file, net).check(false));
}

/// Networks that golden files other than catalogue.json cover.
const OLDER: &[&str] = &["lenet", "lenet-caffe", "cifarnet", "alexnet", "resnet18", "resnet20", "resnet50"];

/// CIFAR ResNets that differ from ResNet-20 only in the number of blocks. The numbers of their parameters are tested elsewhere.
const DEEPER: &[&str] = &["resnet32", "resnet44", "resnet56", "resnet110"];

/// Networks that differ from a recorded one only in their sizes, and that need 10 GB to be recorded.
const LARGER: &[&str] = &["vit_h_14"];

#[test]
fn every_network_is_recorded() {
    let recorded: Vec<String> = file().networks.into_iter().map(|net| net.name).collect();
    let known = [OLDER, DEEPER, LARGER].concat();
    let has = |name: &str| known.contains(&name) || recorded.iter().any(|have| have == name);
    let missing: Vec<&str> = models::names().into_iter().filter(|name| !has(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not in catalogue.json");
}
