//! `trireme models`: the catalogue of networks, and the layers of one.

use super::exit::Failure;
use super::output::print;
use crate::launch;
use crate::models::{self, CATALOGUE, Network};
use crate::nn::spec::{NetSpec, SpecError};
use crate::nn::{estimate, table};
use crate::recipe::did_you_mean;
use serde_json::json;

/// Images of a batch, for the memory that is shown.
const BATCH: usize = 32;

/// Arguments of `trireme models`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme models
  trireme models mobilenet_v2
  trireme models resnet50 --json

The memory is that of training 32 images on one rank: parameters, activations, and the gradients of both. The optimizer's slots come on
top; a device also pads channels and keeps work space, see `trireme train --dry-run`. Multiply-adds are of one image, without auxiliary
classifiers.")]
pub struct Args {
    /// The network to show layer by layer [default: list all networks]
    pub name: Option<String>,
    /// Print JSON, one line for each network or layer
    #[arg(long)]
    pub json: bool,
}

/// Prints the table.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.name {
        None => list(args.json),
        Some(name) => {
            let unknown = || Failure::usage(format!("no network {name}{}", did_you_mean(name, &models::names())));
            show(&Size::of(models::find(name).ok_or_else(unknown)?)?, args.json)
        }
    }
}

/// A network with what it costs.
struct Size {
    network: &'static Network,
    net: NetSpec,
    parameters: usize,
    macs: u64,
    /// Of training [`BATCH`] images, bytes.
    memory: usize,
}

impl Size {
    fn of(network: &'static Network) -> Result<Self, Failure> {
        let wrong = |e: SpecError| Failure::failed(e);
        let net = (network.build)(network.name, network.input, network.classes);
        let (parameters, macs) = (net.param_count().map_err(wrong)?, net.macs().map_err(wrong)?);
        let memory = launch::training_bytes(&net, BATCH)?;
        Ok(Self { network, net, parameters, macs, memory })
    }

    fn json(&self) -> serde_json::Value {
        let Network { name, input, classes, origin, .. } = self.network;
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
        let size = Size::of(network)?;
        print(if as_json { size.json().to_string() } else { row(cells(&size)) })
    })
}

/// Name, images, parameters, millions of multiply-adds, megabytes, origin.
fn cells(size: &Size) -> [String; 6] {
    let (name, origin) = (size.network.name.to_string(), size.network.origin.to_string());
    let macs = size.macs as f64 / 1e6;
    let macs = if macs < 100.0 { format!("{macs:.1}") } else { format!("{macs:.0}") };
    let memory = format!("{:.0}", size.memory as f64 / 1e6);
    [name, size.network.input.to_string(), size.parameters.to_string(), macs, memory, origin]
}

fn row([name, images, parameters, macs, memory, origin]: [String; 6]) -> String {
    format!("{name:<22} {images:>10} {parameters:>11} {macs:>8} {memory:>8}  {origin}")
}

fn show(size: &Size, as_json: bool) -> Result<(), Failure> {
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
    use std::path::Path;

    /// The table of docs/models.md; `TRIREME_BLESS=1 cargo test --lib cli::models` writes it.
    #[test]
    fn the_page_has_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/models.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (begin, end) = ("|---|---|---|---|---|---|\n", "\n\n<!-- end of the table -->");
        let head = page.find(begin).expect("the head of the table") + begin.len();
        let tail = page.find(end).expect("the end of the table");
        let rows = CATALOGUE.iter().map(|network| {
            let [name, images, parameters, macs, memory, origin] = cells(&Size::of(network).unwrap());
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
        let args = Args { name: Some("rasnet50".into()), json: false };
        let failure = run(&args).unwrap_err();
        assert!(failure.code == super::super::exit::USAGE && failure.message.contains("resnet50"), "{failure}");
    }
}
