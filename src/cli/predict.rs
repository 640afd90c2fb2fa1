//! `trireme predict`: names what is on pictures.

use super::cost::Cost;
use super::exit::Failure;
use super::output::print;
use super::value::positive;
use crate::device::DeviceChoice;
use crate::eval::predict::Prediction;
use crate::launch;
use loaders::printable;
use std::path::{Path, PathBuf};

/// Arguments of `trireme predict`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme predict runs/r20/model.h5 cat.jpg dog.png --top 3
  trireme predict runs/r20/model.h5 cat.jpg --json")]
pub struct Args {
    /// Model file that `trireme train` wrote, or the output folder of a run
    #[arg(value_name = "MODEL|RUN")]
    pub model: PathBuf,
    /// Image files, PNG or JPEG
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    /// Classes to name for each image, the likeliest first
    #[arg(long, value_name = "K", default_value = "5", value_parser = positive)]
    pub top: usize,
    /// Use the moving averages of the weights (of a recipe with ema.decay)
    #[arg(long)]
    pub ema: bool,
    /// Where to compute
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceChoice,
    /// What reading an image may cost
    #[command(flatten)]
    pub cost: Cost,
    /// Print one JSON object per image to stdout
    #[arg(long)]
    pub json: bool,
}

/// Predicts one picture after another; one that cannot be read is named, the rest are still done, and the exit code is 1.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut predictor = launch::predictor(args.device, &args.model, args.ema, args.cost.limits())?;
    let mut failures = Vec::new();
    for path in &args.images {
        match predictor.predict(path, args.top) {
            Ok(prediction) => show(args, path, &prediction)?,
            Err(error) => failures.push(error.to_string()),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::failed(failures.join("\n"))) }
}

fn show(args: &Args, path: &Path, prediction: &Prediction) -> Result<(), Failure> {
    let size = prediction.resized_from.map(|(h, w)| format!("{h}x{w}"));
    if args.json {
        let class =
            |(i, name, p): &(usize, String, f64)| serde_json::json!({"label": i, "class": name, "probability": p});
        let classes: Vec<_> = prediction.classes.iter().map(class).collect();
        // a name that is not UTF-8 has no form in JSON: the odd bytes become replacement characters, as on a terminal
        let image = path.to_string_lossy();
        return print(serde_json::json!({"image": image, "classes": classes, "resized_from": size}));
    }
    let note = size.map_or(String::new(), |size| format!(" (resized from {size})"));
    print(format!("{}{note}", path.display()))?;
    prediction.classes.iter().try_for_each(|(_, name, p)| print(format!("  {:>6.2} %  {}", 100.0 * p, printable(name))))
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// A name that is not UTF-8 is shown in both forms.
    #[test]
    fn any_name_of_an_image_is_shown() {
        let name = OsStr::from_bytes(b"w\xff.jpg");
        for form in [None, Some("--json")] {
            let line = ["trireme", "predict", "model.h5"].map(OsStr::new).into_iter().chain([name]);
            let cli = Cli::try_parse_from(line.chain(form.map(OsStr::new))).unwrap();
            let Some(Command::Predict(args)) = cli.command else { panic!("{form:?}") };
            let prediction = Prediction { classes: vec![(3, "cat".into(), 0.5)], resized_from: Some((20, 30)) };
            show(&args, &args.images[0], &prediction).unwrap();
        }
    }
}
