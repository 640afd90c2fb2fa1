//! `trireme models`: lists the networks of the catalogue, or the layers of a network, which can also be the user's own
//! file.

use std::path::Path;

use base::screen;
use engine::{estimate, table};
use formats::interop::onnx;
use loaders::why;
use net::models::{CATALOGUE, Network};
use net::{NetSpec, Shape, SpecError, models, net_toml};
use serde_json::json;
use training::launch;

use super::output::{Failure, print};

/// Number of images per batch for the memory figures.
const BATCH: usize = 32;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme models
  trireme models mobilenet_v2
  trireme models resnet50 --json
  trireme models resnet20 --toml
  trireme models net.toml
  trireme models net.onnx

A name that ends in .toml or .onnx is a file with your own network. For an ONNX file, unsupported nodes are listed. --toml writes any \
network as such a file, as a starting point.

The memory is for training with 32 images on one rank: parameters, activations, and their gradients. It does not include the optimizer's \
slots, padded channels and workspaces, see `trireme train --dry-run`. Multiply-adds are for one image, without auxiliary classifiers.")]
pub struct Args {
    /// Network to show layer by layer: its name, or a file NAME.toml or NAME.onnx [default: list all networks]
    pub name: Option<String>,
    /// Write the network as a TOML file with all layers and numbers
    #[arg(long, requires = "name", conflicts_with = "json")]
    pub toml: bool,
    /// Print JSON, one line per network or layer
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.name {
        None => list(args.json),
        Some(name) => {
            let (title, net) = open(name)?;
            if args.toml {
                return print(net_toml::write(&net, title.classes, net_toml::Classes::Word).trim_end());
            }
            show(&NetworkCost::new(title, net)?, args.json)
        }
    }
}

/// Returns the network with this name or from this file.
fn open(name: &str) -> Result<(Title, NetSpec), Failure> {
    let path = Path::new(name);
    if name.ends_with(".toml") {
        let text = loaders::regular::read_to_string(path)
            .map_err(|e| Failure::usage(format!("cannot read {name}: {}", why(path, &e))))?;
        let read = || {
            let definition = net_toml::Definition::read(&text, name)?;
            let net = definition.build(&file_name(path), definition.input, definition.classes)?;
            Ok((
                Title { name: file_name(path), input: net.input, classes: definition.classes, origin: name.into() },
                net,
            ))
        };
        return read().map_err(|error: net_toml::Error| Failure::usage(error));
    }
    if name.ends_with(".onnx") {
        let onnx::Network { net, classes, notes, .. } = survey(path)?;
        notes.iter().for_each(|note| screen::say(note));
        return Ok((Title { name: file_name(path), input: net.input, classes, origin: name.into() }, net));
    }
    if path.is_file() {
        return Err(Failure::usage(format!("{name}: the name of a network file must end in .toml or .onnx")));
    }
    let unknown = || Failure::usage(models::unknown(name));
    let network = models::find(name).ok_or_else(unknown)?;
    Ok((Title::of(network), (network.build)(network.name, network.input, network.classes)))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads the network in an ONNX file, and prints the number of supported nodes. If there are unsupported nodes, returns
/// an error that lists them.
fn survey(path: &Path) -> Result<onnx::Network, Failure> {
    let survey = onnx::read(path).map_err(Failure::usage)?;
    let (all, odd, behind) = (survey.nodes, survey.unsupported.clone(), survey.behind);
    let mut text =
        format!("{}: {} of {all} nodes are supported", path.display(), all.saturating_sub(odd.len() + behind));
    if behind > 0 {
        text += &format!(", {behind} were not checked, because they read the output of unsupported nodes");
    }
    screen::say(&text);
    if odd.is_empty() {
        return survey.network().map_err(Failure::usage);
    }
    let list = odd.iter().map(|node| format!("not supported: {node}\n")).collect::<String>();
    Err(Failure::usage(base::text::printable_lines(list.trim_end())))
}

/// The name of a network with its default input and classes.
struct Title {
    name: String,
    input: Shape,
    classes: usize,
    origin: String,
}

impl Title {
    fn of(network: &Network) -> Self {
        let Network { name, input, classes, origin, .. } = *network;
        Self { name: name.into(), input, classes, origin: origin.into() }
    }
}

/// A network with its parameters, multiply-adds and memory.
struct NetworkCost {
    title: Title,
    net: NetSpec,
    parameters: usize,
    macs: u64,
    /// Bytes for training with [`BATCH`] images.
    memory: usize,
}

impl NetworkCost {
    fn of(network: &Network) -> Result<Self, Failure> {
        Self::new(Title::of(network), (network.build)(network.name, network.input, network.classes))
    }

    fn new(title: Title, net: NetSpec) -> Result<Self, Failure> {
        let wrong = |e: SpecError| Failure::failed(e);
        let (parameters, macs) = (net.param_count().map_err(wrong)?, net.macs().map_err(wrong)?);
        let memory = launch::training_bytes(&net, BATCH)?;
        Ok(Self { title, net, parameters, macs, memory })
    }

    fn json(&self) -> serde_json::Value {
        let Title { name, input, classes, origin } = &self.title;
        let (parameters, macs, memory) = (self.parameters, self.macs, self.memory);
        json!({
            "name": name, "origin": origin, "input": [input.c, input.h, input.w], "classes": classes, "parameters": parameters,
            "macs": macs, "batch": BATCH, "memory_bytes": memory,
        })
    }
}

fn list(as_json: bool) -> Result<(), Failure> {
    if !as_json {
        let head = ["name", "images", "parameters", "MMAC", "MB at 32", "as defined by"];
        print(row(head.map(String::from)))?;
    }
    CATALOGUE.iter().try_for_each(|network| {
        let size = NetworkCost::of(network)?;
        print(if as_json { size.json().to_string() } else { row(cells(&size)) })
    })
}

/// Formats name, image size, parameters, millions of multiply-adds, megabytes and origin.
fn cells(size: &NetworkCost) -> [String; 6] {
    let (name, origin) = (size.title.name.clone(), size.title.origin.clone());
    let macs = size.macs as f64 / 1e6;
    let macs = if macs < 100.0 { format!("{macs:.1}") } else { format!("{macs:.0}") };
    let memory = format!("{:.0}", size.memory as f64 / 1e6);
    [name, size.title.input.to_string(), size.parameters.to_string(), macs, memory, origin]
}

fn row([name, images, parameters, macs, memory, origin]: [String; 6]) -> String {
    format!("{name:<22} {images:>10} {parameters:>11} {macs:>8} {memory:>8}  {origin}")
}

fn show(size: &NetworkCost, as_json: bool) -> Result<(), Failure> {
    if !as_json {
        let text = table::layers(&size.net).map_err(Failure::failed)?;
        let memory = size.memory as f64 / 1e6;
        return print(format!("{text}\n{BATCH} images take {memory:.0} MB in training, without the optimizer's slots"));
    }
    for layer in estimate::layers(&size.net).map_err(Failure::failed)? {
        let output = [layer.output.c, layer.output.h, layer.output.w];
        let line = json!({
            "name": layer.name, "kind": layer.kind, "output": output, "parameters": layer.parameters, "macs": layer.macs,
        });
        print(line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    /// Checks the table in docs/models.md. `TRIREME_BLESS=1 cargo test --lib cli::models` writes it.
    #[test]
    fn the_page_has_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/models.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (begin, end) = ("|---|---|---|---|---|---|\n", "\n\n<!-- end of the table -->");
        let head = page.find(begin).expect("the head of the table") + begin.len();
        let tail = page.find(end).expect("the end of the table");
        let rows = CATALOGUE.iter().map(|network| {
            let [name, images, parameters, macs, memory, origin] = cells(&NetworkCost::of(network).unwrap());
            format!("| `{name}` | {images} | {parameters} | {macs} | {memory} | {origin} |")
        });
        let wanted = format!("{}{}{}", &page[..head], rows.collect::<Vec<_>>().join("\n"), &page[tail..]);
        if std::env::var_os("TRIREME_BLESS").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        assert!(page == wanted || std::env::var_os("TRIREME_BLESS").is_some(), "docs/models.md differs; see this test");
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let args = Args { name: Some("rasnet50".into()), toml: false, json: false };
        let failure = run(&args).unwrap_err();
        assert_eq!(failure.code, super::super::output::USAGE, "{failure}");
        mentions(failure, &["rasnet50", "\"resnet50\"", "`trireme models`"]);
    }

    #[test]
    fn network_files_are_recognised_by_their_extensions() {
        let said = |name: &str| run(&Args { name: Some(name.into()), toml: false, json: false }).unwrap_err().message;
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile").display().to_string();
        assert!(said(&manifest).contains(".toml or .onnx"), "{}", said(&manifest));
        let absent = manifest.replace("Makefile", "Cargo.tom.toml");
        assert!(said(&absent).contains("did you mean") && said(&absent).contains("Cargo.toml"), "{}", said(&absent));
    }
}
