use super::*;
use crate::models::CATALOGUE;
use crate::{Init, LONGEST_PATH, NetSpec, Op, Shape};

fn build(text: &str) -> Result<NetSpec, Error> {
    Definition::read(text, "net.toml").and_then(|d| d.build("net", d.input, d.classes))
}

/// Returns a file with these nodes, one per line from line 3 on, for 3x8x8 images and 10 classes.
fn of_nodes(nodes: &[&str]) -> String {
    format!("input = [3, 8, 8]; classes = 10\nnodes = [\n{}\n]\n", nodes.join("\n")).replace("; ", "\n")
}

/// Resets the initialisation of the layers that compute scores. In some networks it depends on the number of classes.
fn without_starts(mut net: NetSpec) -> NetSpec {
    for scores in net.scores().collect::<Vec<_>>() {
        if let Some(Op::Linear(linear)) = net.scores_layer(scores).map(|at| &mut net.nodes[at].op) {
            linear.init = Init::UniformFanIn;
        }
    }
    net
}

#[test]
fn every_network_of_the_catalogue_is_written_and_read() {
    for network in CATALOGUE {
        let net = (network.build)(network.name, network.input, network.classes);
        for how in [Classes::Number, Classes::Word] {
            let text = write(&net, network.classes, how);
            let read = Definition::read(&text, "net.toml").unwrap_or_else(|e| panic!("{}: {e}", network.name));
            assert_eq!((read.input, read.classes), (network.input, network.classes));
            let built = read.build(network.name, network.input, network.classes);
            assert!(built.as_ref() == Ok(&net), "{}:\n{text}", network.name);
            if how == Classes::Word {
                let other = without_starts(read.build(network.name, network.input, 7).unwrap());
                let wanted = without_starts((network.build)(network.name, network.input, 7));
                assert!(other == wanted, "{}:\n{text}", network.name);
            }
        }
    }
}

#[test]
fn set_classes_changes_only_the_layers_of_scores() {
    for network in CATALOGUE {
        let mut net = (network.build)(network.name, network.input, network.classes);
        assert_eq!(set_classes(&mut net, network.classes), [""; 0]);
        let changed = set_classes(&mut net, 7);
        let wanted = without_starts((network.build)(network.name, network.input, 7));
        assert!(without_starts(net) == wanted, "{}: {changed:?}", network.name);
    }
}

const BLOCKS: &str = r#"
input = [3, 32, 32]
classes = 10
nodes = [
    { name = "conv1", op = "conv", channels = 16, kernel = 3, pad = 1, init = "he_normal_fan_out" },
    { name = "bn1", op = "norm", relu = true },
    { name = "layer1", block = "basic", repeat = 3, channels = 16 },
    { name = "layer2", block = "basic", repeat = 3, channels = 32, first = { block = "down" } },
    { name = "layer3", block = "basic", repeat = 3, channels = 64, first = { block = "down" } },
    { name = "avgpool", op = "avgpool" },
    { name = "flatten", op = "flatten" },
    { name = "fc", op = "linear", features = "classes" },
]

[blocks.basic]
nodes = [
    { name = "conv1", op = "conv", channels = "$channels", kernel = 3, pad = 1, init = "he_normal_fan_out" },
    { name = "bn1", op = "norm", relu = true },
    { name = "conv2", op = "conv", channels = "$channels", kernel = 3, pad = 1, init = "he_normal_fan_out" },
    { name = "bn2", op = "norm", residual = true, relu = true, inputs = ["conv2", "input"] },
]

[blocks.down]
nodes = [
    { name = "conv1", op = "conv", channels = "$channels", kernel = 3, stride = 2, pad = 1, init = "he_normal_fan_out" },
    { name = "bn1", op = "norm", relu = true },
    { name = "conv2", op = "conv", channels = "$channels", kernel = 3, pad = 1, init = "he_normal_fan_out" },
    { name = "shortcut", op = "shortcut", channels = "$channels", stride = 2, inputs = ["input"] },
    { name = "bn2", op = "norm", residual = true, relu = true, inputs = ["conv2", "shortcut"] },
]
"#;

#[test]
fn blocks_in_toml_build_the_resnet20_of_the_catalogue() {
    let net = crate::models::build("resnet20", Shape::image(3, 32, 32), 10).unwrap();
    assert_eq!(build(BLOCKS).map(|built| NetSpec { name: net.name.clone(), ..built }), Ok(net));
}

#[test]
fn values_can_refer_to_channels_and_classes() {
    let text = of_nodes(&[
        r#"{ name = "a", op = "conv", channels = 5, kernel = [1, 3], pad = "same", stride = 2 },"#,
        r#"{ name = "b", op = "conv", channels = "channels", kernel = 3, pad = [1, 0], groups = "channels" },"#,
        r#"{ name = "c", op = "linear", features = "classes" },"#,
    ]);
    let net = build(&text).unwrap();
    assert_eq!(net.shapes().unwrap()[1..], [Shape::image(5, 4, 4), Shape::image(5, 4, 2), Shape::vector(10)]);
}

/// Checks that a text is rejected with a message that contains these parts.
fn refused(text: &str, wanted: &[&str]) {
    let error = build(text).expect_err("a network that is refused").to_string();
    wanted.iter().for_each(|part| assert!(error.contains(part), "expected {part:?} in: {error}"));
}

/// Checks that a text is rejected because of this line and node, with a reason that contains these parts.
fn refused_at(text: &str, line: usize, node: &str, wanted: &[&str]) {
    let error = build(text).expect_err("a network that is refused");
    assert_eq!((&*error.file, error.line, &*error.node), ("net.toml", line, node), "{error}");
    wanted.iter().for_each(|part| assert!(error.why.contains(part), "expected {part:?} in: {error}"));
}

const CONV: &str = r#"{ name = "a", op = "conv", channels = 4, kernel = 3, pad = 1 },"#;
const END: &str = r#"{ name = "fc", op = "linear", features = "classes" },"#;

#[test]
fn missing_and_unread_nodes_are_named_with_their_line() {
    let missing = r#"{ name = "b", op = "relu", inputs = ["aa"] },"#;
    refused_at(&of_nodes(&[CONV, missing, END]), 5, "b", &["\"aa\"", "\"a\""]);
    let unread = r#"{ name = "b", op = "relu", inputs = ["input"] },"#;
    refused_at(&of_nodes(&[CONV, unread, END]), 4, "a", &["no other node", "head = 0.3"]);
    refused_at(&of_nodes(&[r#"{ name = "a", channels = 4 },"#, END]), 4, "a", &["op", "block"]);
    refused_at(&of_nodes(&[r#"{ name = "a", op = "conv", channels = 4 },"#]), 4, "a", &["kernel is missing"]);
    refused_at("classes = 10\nnodes = []\n", 1, "", &["input is missing"]);
}

#[test]
fn errors_about_cycles_list_their_nodes() {
    let back = r#"{ name = "b", op = "add", inputs = ["a", "d"] },"#;
    let on = [r#"{ name = "c", op = "relu" },"#, r#"{ name = "d", op = "relu" },"#];
    refused_at(&of_nodes(&[CONV, back, on[0], on[1], END]), 5, "b", &["cycle", "d -> c -> b"]);
    let own = r#"{ name = "b", op = "add", inputs = ["a", "b"] },"#;
    refused_at(&of_nodes(&[CONV, own, END]), 5, "b", &["cycle", "(b -> b)"]);
    let later = r#"{ name = "b", op = "relu", inputs = ["c"] },"#;
    let other = r#"{ name = "c", op = "relu", inputs = ["a"] },"#;
    refused_at(&of_nodes(&[CONV, later, other, END]), 5, "b", &["reads c", "line 6"]);
    let blocks = "\n[blocks.x]\nnodes = [{ name = \"y\", block = \"y\" }]\n[blocks.y]\nnodes = [{ name = \"x\", block = \"x\" }]\n";
    let text = of_nodes(&[r#"{ name = "a", block = "x" },"#]) + blocks;
    refused(&text, &["x -> y -> x"]);
}

#[test]
fn shape_mismatches_are_reported_with_both_shapes() {
    let small = r#"{ name = "b", op = "conv", channels = 4, kernel = 3, stride = 2, pad = 1 },"#;
    let sum = r#"{ name = "c", op = "add", inputs = ["b", "a"] },"#;
    let parts = ["add: ", "b of 4x4x4", "a of 4x8x8", "kernel = 1"];
    refused_at(&of_nodes(&[CONV, small, sum, END]), 6, "c", &parts);
    let large = r#"{ name = "b", op = "conv", channels = 4, kernel = 11 },"#;
    refused_at(&of_nodes(&[CONV, large, END]), 5, "b", &["conv: ", "11x11", "4x8x8", "smaller kernel"]);
    let grouped = r#"{ name = "b", op = "conv", channels = 4, kernel = 3, pad = 1, groups = 3 },"#;
    refused_at(&of_nodes(&[CONV, grouped, END]), 5, "b", &["conv: ", "3 groups", "groups must divide"]);
    refused_at(&of_nodes(&[CONV]), 4, "a", &["4x8x8", "10 scores"]);
}

#[test]
fn unknown_words_get_the_nearest_known_one_as_a_hint() {
    let of = |node: &str| of_nodes(&[node, END]);
    refused(&of(r#"{ name = "a", op = "convv", channels = 4 },"#), &["\"convv\"", "\"conv\""]);
    for (theirs, ours) in [
        ("Conv2d", "conv"),
        ("BatchNorm2d", "norm"),
        ("MaxPooling2D", "maxpool"),
        ("Dense", "linear"),
        ("ReLU", "relu"),
        ("swish", "silu"),
        ("LayerNorm", "layer_norm"),
        ("Hardswish", "hard_swish"),
        ("GlobalAveragePool", "avgpool"),
    ] {
        let node = format!(r#"{{ name = "a", op = "{theirs}" }},"#);
        refused(&of(&node), &[&format!("\"{theirs}\""), &format!("calls it {ours}")]);
    }
    let keras = r#"{ name = "a", op = "conv", filters = 4, channels = 4, kernel = 3 },"#;
    refused_at(&of(keras), 4, "a", &["conv", "filters", "calls it channels"]);
    let init = r#"{ name = "a", op = "conv", channels = 4, kernel = 3, init = "normal" },"#;
    refused(&of(init), &["init: expected", "normal(sd)", "got \"normal\""]);
    refused(&of(r#"{ name = "a", op = "dropout", rate = 1.0 },"#), &["rate", "[0, 1)"]);
    refused(&of(r#"{ name = "a", block = "basik" },"#), &["\"basik\"", "[blocks]"]);
    refused(&of(r#"{ name = "a/b", op = "relu" },"#), &["net.toml:4: \"a/b\" ", "name"]);
    refused(&of(r#"{ name = "input2", op = "relu" },"#), &["net.toml:4: \"input2\" ", "and a number"]);
    refused(&of(r#"{ name = "a", op = "maxpool", stride = 2 },"#), &["stride needs a window"]);
    refused(&of(r#"{ name = "a", op = "maxpool", window = 2 },"#), &["stride is missing"]);
    refused_at(&of_nodes(&[CONV, CONV, END]), 5, "a", &["line 4"]);
    let of_block = [r#"{ name = "a", block = "x" },"#, r#"{ name = "a.y", op = "relu" },"#, END];
    let relu = "[blocks.x]\nnodes = [{ name = \"y\", op = \"relu\" }]\n";
    refused_at(&(of_nodes(&of_block) + relu), 5, "a.y", &["line 9"]);
    let block = "[blocks.x]\nnodes = [{ name = \"y\", op = \"conv\", channels = \"$width\", kernel = 1 }]\n";
    let unset = of(r#"{ name = "a", block = "x" },"#) + block;
    refused_at(&unset, 8, "a.y", &["$width", "no value"]);
    let odd = of(r#"{ name = "a", block = "x", widht = 4 },"#) + block;
    refused_at(&odd, 4, "a", &["block x", "widht", "\"width\""]);
}

/// A run's output files use each node's full path.
#[test]
fn the_longest_path_is_written_and_read() {
    let (outer, inner) = ("a".repeat(124), "b".repeat(125));
    let text = |inner: &str| {
        let nodes = of_nodes(&[&format!(r#"{{ name = "{outer}", block = "x" }},"#), END]);
        nodes + &format!("[blocks.x]\nnodes = [{{ name = \"{inner}\", op = \"relu\" }}]\n")
    };
    let net = build(&text(&inner)).unwrap();
    assert_eq!(net.nodes[0].name.len(), LONGEST_PATH);
    assert_eq!(build(&write(&net, 10, Classes::Number)), Ok(net));
    refused(&text(&(inner + "b")), &["250 characters"]);
}

#[test]
fn definitions_with_too_many_nodes_are_refused() {
    let twice =
        |n: usize| format!("[blocks.b{n}]\nnodes = [{{ name = \"x\", block = \"b{}\", repeat = 100 }}]\n", n + 1);
    let blocks: String =
        (0..20).map(twice).collect::<String>() + "[blocks.b20]\nnodes = [{ name = \"x\", op = \"relu\" }]\n";
    refused(&(of_nodes(&[r#"{ name = "a", block = "b0" },"#]) + &blocks), &["10000"]);
    let doubled = |n: usize| {
        format!("[blocks.d{n}]\nnodes = [{{ name = \"x\", block = \"d{}\", p = [\"$p\", \"$p\"] }}]\n", n + 1)
    };
    let blocks: String = (0..20).map(doubled).collect::<String>()
        + "[blocks.d20]\nnodes = [{ name = \"x\", op = \"relu\", p = \"$p\" }]\n";
    refused(&(of_nodes(&[r#"{ name = "a", block = "d0", p = 1 },"#]) + &blocks), &["1000000 values"]);
    let wide = r#"{ name = "a", op = "conv", channels = 16000000, kernel = 1 },"#;
    refused(&of_nodes(&[wide, END]), &["node a: conv: ", "values per image"]);
    refused(&of_nodes(&[r#"{ name = "a", op = "relu" }, { name = "b", block = "x", repeat = 0 },"#]), &["from 1 to"]);
}
