//! Reading ONNX graphs. Networks of the catalogue that were exported and read again have the same parameters and
//! scores, and files that PyTorch wrote give PyTorch's scores (`golden/onnx`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use backend::Backend;
use engine::{Graph, Purpose};
use formats::checkpoint::{ModelFile, Tensor};
use formats::interop::export::{Format, Settings, Trained};
use formats::interop::onnx::Network;
use formats::interop::{export, onnx};
use net::{
    Activation, Add, Attention, ClassToken, Conv, Flatten, LayerNorm, Linear, NetSpec, Norm, Op, PositionEmbedding,
    Shape, Token, models, net_toml,
};
use training::train::save::model::layers;

use support::numerics::{assert_close, cpu, magnitude, noise};

const IMAGES: usize = 2;

/// Networks that together have each kind of layer, with small image sizes that they accept.
const NETWORKS: &[(&str, usize)] = &[
    ("lenet-caffe", 28),
    ("cifarnet-slim", 32),
    ("resnet20", 32),
    ("wrn16_2", 32),
    ("airbench94", 32),
    ("googlenet", 64),
    ("resnet50", 32),
    ("seresnet50", 32),
    ("squeezenet1_1", 64),
    ("mobilenet_v2", 32),
    ("mobilenet_v3_small", 32),
    ("efficientnet_b0", 32),
    ("tf_efficientnet_lite0", 33),
    ("densenet121", 32),
    ("convnext_tiny", 32),
    ("vit_ti_4", 32),
];

fn scores<B: Backend>(graph: &mut Graph<B>, images: &[f32]) -> Vec<f32> {
    graph.scores(images, IMAGES).unwrap()
}

fn filled(net: NetSpec, tensors: &[Tensor]) -> Graph<impl Backend> {
    let mut graph = Graph::new(cpu(1), net, IMAGES, Purpose::Infer, 7).unwrap();
    let values: BTreeMap<&str, &[f32]> = tensors.iter().map(|(name, _, values)| (name.as_str(), &values[..])).collect();
    for i in 0..graph.params().len() {
        let name = graph.params()[i].name.clone();
        graph.set_param(i, values[name.as_str()]).unwrap();
    }
    for place in graph.norms().to_vec() {
        let name = graph.net().nodes[place.node].name.clone();
        for (half, field) in ["running_mean", "running_var"].into_iter().enumerate() {
            let at = place.offset + half * place.channels;
            let own = values[format!("{name}.{field}").as_str()];
            graph.running_mut()[at..at + place.channels].copy_from_slice(own);
        }
    }
    graph
}

fn head(name: &str, input: Shape, classes: usize) -> ModelFile {
    let sizes = [input.c, input.h, input.w];
    ModelFile {
        network: name.into(),
        definition: String::new(),
        input: sizes,
        image: sizes,
        classes: (0..classes).map(|n| n.to_string()).collect(),
        targets: Vec::new(),
        multi_label: false,
        preprocess: Vec::new(),
        bands: Default::default(),
        mean: Vec::new(),
        std: Vec::new(),
        recipe: String::new(),
        scores: BTreeMap::new(),
        epoch: 0,
        step: 0,
        layers: Vec::new(),
        ema: Vec::new(),
    }
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("trireme-{name}-{}.onnx", std::process::id()))
}

/// Settings of an ONNX export in f32, without folded batch norms and without preprocessing.
const PLAIN: Settings = Settings { format: Format::Onnx, half: false, fold: false, preprocess: false, force: true };

fn exported(name: &str, pixels: usize, half: bool) -> (PathBuf, NetSpec, Vec<f32>, Vec<f32>) {
    let channels = models::input(name).unwrap().c;
    let net = models::build(name, Shape::image(channels, pixels, pixels), 10).unwrap();
    written(&format!("{name}-{half}"), net, &[], &Settings { half, ..PLAIN })
}

/// Exports a network with 10 classes and random weights and statistics. Returns the file, the network, the images and the scores.
fn written(
    name: &str,
    net: NetSpec,
    preprocess: &[&str],
    settings: &Settings,
) -> (PathBuf, NetSpec, Vec<f32>, Vec<f32>) {
    let mut graph = Graph::new(cpu(1), net.clone(), IMAGES, Purpose::Infer, 3).unwrap();
    for place in graph.norms().to_vec() {
        let (mean, var) = (noise(place.channels, 5, 0.1), noise(place.channels, 6, 0.2));
        let running = &mut graph.running_mut()[place.offset..][..2 * place.channels];
        running[..place.channels].copy_from_slice(&mean);
        running[place.channels..].iter_mut().zip(var).for_each(|(value, v)| *value = 1.0 + v);
    }
    let images = noise(IMAGES * net.input.elems(), 11, 1.0);
    let scores = scores(&mut graph, &images);
    let preprocess = preprocess.iter().map(|op| op.to_string()).collect();
    let model = ModelFile { layers: layers(&graph).unwrap(), preprocess, ..head(&net.name, net.input, 10) };
    let path = file(name);
    export::write(Trained::new(net.clone(), model).unwrap(), &path, settings).unwrap();
    (path, net, images, scores)
}

fn read(path: &Path) -> Network {
    onnx::read(path).and_then(|survey| survey.network()).unwrap_or_else(|error| panic!("{error}"))
}

/// Works like [`read`], and removes the file.
fn take(path: &Path) -> Network {
    let network = read(path);
    std::fs::remove_file(path).unwrap();
    network
}

/// Returns the names and shapes of the tensors that the scores depend on. Batch norms without a scale are exported with a scale of ones.
fn serving(net: &NetSpec) -> BTreeSet<(String, Vec<usize>)> {
    let mut pruned = net.clone();
    for node in &mut pruned.nodes {
        if let Op::Norm(norm) = &mut node.op {
            norm.scale = true;
        }
    }
    let layers: BTreeSet<String> = net
        .nodes
        .iter()
        .zip(net.serving())
        .filter(|(_, serving)| *serving)
        .map(|(node, _)| node.name.clone())
        .collect();
    let tensors = pruned.tensors().unwrap();
    let all = tensors.parameters.into_iter().chain(tensors.running);
    all.filter(|(name, _)| layers.contains(name.rsplit_once('.').unwrap().0)).collect()
}

/// Returns the rates of the dropout layers that the scores depend on, in order, and the momentum of each batch norm.
fn only_in_training(net: &NetSpec) -> (Vec<f32>, BTreeMap<String, f32>) {
    let (mut rates, mut momentums) = (Vec::new(), BTreeMap::new());
    for (node, _) in net.nodes.iter().zip(net.serving()).filter(|(_, serving)| *serving) {
        match &node.op {
            Op::Dropout(dropout) => rates.push(dropout.0),
            Op::Norm(norm) => {
                momentums.insert(node.name.clone(), norm.momentum);
            }
            _ => {}
        }
    }
    (rates, momentums)
}

#[track_caller]
fn assert_near(what: &str, got: &[f32], want: &[f32], tolerance: f64) {
    assert_close(what, got, want, tolerance * magnitude(want).max(1.0));
}

#[test]
fn networks_come_back_from_their_own_export() {
    for (name, pixels) in NETWORKS {
        let (path, net, images, wanted) = exported(name, *pixels, false);
        let Network { net: back, classes, tensors, .. } = take(&path);
        assert_eq!((classes, back.input), (10, net.input), "{name}");
        let names: BTreeSet<(String, Vec<usize>)> =
            tensors.iter().map(|(name, shape, _)| (name.clone(), shape.clone())).collect();
        assert_eq!(names, serving(&net), "{name}");
        assert_eq!(only_in_training(&back), only_in_training(&net), "{name}");
        assert_near(name, &scores(&mut filled(back.clone(), &tensors), &images), &wanted, 1e-5);
        // writing the network as TOML and reading it gives the same network
        let text = net_toml::write(&back, classes, net_toml::Classes::Number);
        let read = net_toml::Definition::read(&text, "net.toml").unwrap().build(&back.name, back.input, classes);
        assert_eq!(read.as_ref(), Ok(&back), "{name}");
    }
}

/// Attention with a class token and a factor of its own, which no small network of the catalogue has.
#[test]
fn attention_comes_back_from_its_own_export() {
    let mut net = NetSpec::new("tokens", Shape::image(3, 8, 8));
    let x = net.add("patches", Conv::new(12, 2).stride(2), net.image());
    let x = net.add("token", ClassToken, x);
    let x = net.add("positions", PositionEmbedding::default(), x);
    let x = net.add("norm", LayerNorm::new(), x);
    let y = net.add("qkv", Conv::new(36, 1).bias(0.0), x);
    let y = net.add("attention", Attention { scale: Some(0.3), ..Attention::new(3) }, y);
    let x = net.join("sum", Add, &[y, x]);
    let x = net.add("first", Token(0), x);
    let x = net.add("flat", Flatten, x);
    net.add("fc", Linear::new(10), x);
    let (path, _, images, wanted) = written("tokens", net.clone(), &[], &PLAIN);
    let Network { net: back, tensors, .. } = take(&path);
    // initial values are not in the file, and layers without weights have other names
    let layers = |net: &NetSpec| net.nodes.iter().map(|node| (node.op.kind(), node.inputs.clone())).collect::<Vec<_>>();
    assert_eq!(layers(&back), layers(&net));
    assert_eq!(back.nodes[5].op, net.nodes[5].op);
    assert_near("tokens", &scores(&mut filled(back, &tensors), &images), &wanted, 1e-5);
}

/// Exports both versions of Swin and imports the files. The layers have the same kinds and scores, but other names. At
/// this image size, some windows are shifted or padded.
#[test]
fn attention_in_windows_comes_back_from_its_own_export() {
    for name in ["swin_t", "swin_v2_t"] {
        let (path, net, images, wanted) = exported(name, 64, false);
        let Network { net: back, tensors, .. } = take(&path);
        let kinds = |net: &NetSpec| -> Vec<_> {
            let serving =
                net.nodes.iter().zip(net.serving()).filter(|(node, serving)| *serving && node.op.kind() != "drop_path");
            serving.map(|(node, _)| node.op.kind()).collect()
        };
        assert_eq!(kinds(&back), kinds(&net), "{name}");
        let shifted = |net: &NetSpec| {
            let ops = net.nodes.iter().map(|node| &node.op);
            ops.filter(|op| matches!(op, Op::Attention(op) if op.position_bias.is_some() && op.shift != [0; 2])).count()
        };
        assert!(shifted(&back) > 0, "{name}");
        assert_near(name, &scores(&mut filled(back, &tensors), &images), &wanted, 1e-5);
    }
}

#[test]
fn layers_come_back_joined_as_in_the_catalogue() {
    let (path, net, ..) = exported("resnet20", 32, false);
    let back = take(&path).net;
    let kinds =
        |net: &NetSpec| net.nodes.iter().map(|node| (node.name.clone(), node.op.kind())).collect::<BTreeSet<_>>();
    assert_eq!(kinds(&back), kinds(&net));
    assert_eq!(back.nodes.len(), net.nodes.len());
}

/// Layers may have names that the file uses for something else: inputs, outputs, weights, and names that the export adds.
#[test]
fn layers_may_have_any_name() {
    let mut net = NetSpec::new("names", Shape::image(3, 6, 6));
    let x = net.add("image", Conv::new(4, 3), net.image());
    let x = net.add("crop", Activation::Tanh, x);
    let start = net.add("conv", Conv::new(4, 1), x);
    let x = net.add("conv.weight", Activation::Tanh, start);
    let x = net.add("logits", Conv::new(4, 1), x);
    let x = net.join("norm", Norm::new().residual().relu(), &[x, start]);
    let x = net.add("norm.relu", Activation::Sigmoid, x);
    let x = net.add("fc.flat", Activation::Tanh, x);
    net.add("fc", Linear::new(10), x);
    for (name, half, fold) in [("plain", false, false), ("half", true, false), ("fold", false, true)] {
        let settings = Settings { half, fold, ..PLAIN };
        let (path, _, images, wanted) = written(&format!("names-{name}"), net.clone(), &[], &settings);
        let Network { net: back, tensors, .. } = take(&path);
        let tolerance = if half { 5e-3 } else { 1e-5 };
        assert_near(name, &scores(&mut filled(back, &tensors), &images), &wanted, tolerance);
    }
    // a graph with a byte input cannot be read; the names are checked before that
    let transforms = ["center_crop(6)", "normalize(0.5, 0.2)"];
    let (path, ..) = written("names-bytes", net, &transforms, &Settings { preprocess: true, ..PLAIN });
    let error = onnx::read(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let onnx::Error::File { why, .. } = &error else { panic!("{error}") };
    assert!(["input image", "uint8", "float32"].iter().all(|part| why.contains(part)), "{error}");
}

#[test]
fn weights_of_16_bits_are_read() {
    let (path, _, images, wanted) = exported("lenet-caffe", 28, true);
    let Network { net, tensors, .. } = take(&path);
    assert_near("half", &scores(&mut filled(net, &tensors), &images), &wanted, 5e-3);
}

#[derive(serde::Deserialize)]
struct Golden {
    scores: Vec<f32>,
    edges: Vec<f32>,
    vits: BTreeMap<String, Vec<f32>>,
    windows: BTreeMap<String, Vec<f32>>,
    parameters: BTreeMap<String, Vec<usize>>,
}

fn golden() -> (Golden, Vec<f32>) {
    let images = (0..IMAGES * 3 * 16 * 16).map(|i| (0.37 * i as f64).sin() as f32).collect();
    (support::numerics::golden("onnx/scores.json"), images)
}

#[test]
fn files_of_pytorch_give_its_scores() {
    let (golden, images) = golden();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/onnx");
    let Golden { scores: same, edges, vits, windows, .. } = golden;
    let vits = vits.iter().chain(&windows).map(|(name, scores)| (name.as_str(), scores));
    for (name, wanted) in
        [("scripted", &same), ("folded", &same), ("dynamo", &same), ("edges", &edges)].into_iter().chain(vits)
    {
        let Network { net, tensors, classes, .. } = read(&folder.join(format!("{name}.onnx")));
        assert_eq!(classes, 5, "{name}");
        assert_near(name, &scores(&mut filled(net, &tensors), &images), wanted, 1e-5);
    }
}

/// If batch norm is kept, names and shapes equal those of PyTorch's module.
#[test]
fn parameters_of_pytorch_keep_their_names() {
    let (golden, _) = golden();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/onnx/scripted.onnx");
    let net = read(&path).net;
    let names: BTreeMap<String, Vec<usize>> = net.tensors().unwrap().parameters.into_iter().collect();
    let convs = golden.parameters.iter().filter(|(_, shape)| shape.len() == 4);
    for (name, shape) in convs {
        assert_eq!(names.get(name), Some(shape), "{name} of {names:?}");
    }
    let elements =
        |shapes: &BTreeMap<String, Vec<usize>>| shapes.values().map(|s| s.iter().product::<usize>()).sum::<usize>();
    assert_eq!(elements(&names), elements(&golden.parameters));
}
