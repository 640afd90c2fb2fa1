//! `trireme predict`: classifies images.

use std::path::{Path, PathBuf};

use base::screen;
use base::text::{plural, printable};
use data_tools::{ContactSheet, raw};
use loaders::stall::StallLimits;
use loaders::{LabelKind, overwrite};
use training::eval::findings::field;
use training::eval::image_reader::{ReadingRequest, is_picture};
use training::eval::pictures::{Picture, images, pictures};
use training::eval::predict::{ClassSelection, NPY, NpyWriter, Predict, Prediction};
use training::eval::predict_many::{ManyRequest, ManySummary};
use training::eval::request::ModelRequest;
use training::launch;

use super::output::{Failure, print};
use super::set_wait_policy;
use super::value::{Cost, DeviceName, Stall, Views, positive, probability, thread_count};

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme predict runs/r20/model.h5 cat.jpg dog.png --top 3
  trireme predict runs/r20 photos --csv --top 1
  trireme predict runs/r20 'photos/*.jpg' --sheet photos.png
  find photos -name '*.jpg' | trireme predict runs/r20 - --json
  trireme predict runs/r20 photos --embed photos.npy
  mpirun -n 4 trireme predict runs/r20 photos --out photos.parquet \
      --features photos.npy
  trireme predict runs/r20 data/cifar10 --split test --out test.csv --logits
  trireme predict runs/voc photos --threshold 0.3

If an image cannot be read, the others are still classified, and the exit code is 1.

With --out, the ranks share the images. The table has a row for each image in their order, the same on any number of \
ranks. An image that cannot be read has a row with its error. To continue a stopped prediction, run the same command again."
)]
pub struct Args {
    /// Model file written by `trireme train`, or the output folder of a run
    #[arg(value_name = "MODEL|RUN")]
    pub model: PathBuf,
    /// PNG or JPEG files, or for models of images with bands also TIFF, .npy and HDF5 files. Also folders with such
    /// files, or patterns such as 'photos/*.jpg'. - reads names from standard input, one per line. With --out also the
    /// folder of a data set
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    /// Maximum number of classes to print per image, most probable first [default: 5, or 1 with --out; for models with
    /// several labels per image all above --threshold]
    #[arg(long, value_name = "K", value_parser = positive)]
    pub top: Option<usize>,
    /// For models with several labels per image: print the classes with a probability above P [default: 0.5]
    #[arg(long, value_name = "P", value_parser = probability)]
    pub threshold: Option<f64>,
    /// Use the best checkpoint of a run, selected by `checkpoint.best_by` of the recipe
    #[arg(long)]
    pub best: bool,
    /// Use the averaged weights (if the recipe has ema.decay or ema.swa_start)
    #[arg(long)]
    pub ema: bool,
    #[command(flatten)]
    pub views: Views,
    /// Reject a model file that another program has written to
    #[arg(long)]
    pub sealed: bool,
    /// Axis order of .npy and HDF5 files [default: as in the data set]
    #[arg(long, value_name = "NHWC|NCHW|NHW", value_parser = raw::layout)]
    pub layout: Option<raw::Layout>,
    /// Predict each page of a TIFF as an image of its own, named FILE#PAGE. Smaller copies and masks are left out
    #[arg(long, conflicts_with = "sheet")]
    pub pages: bool,
    /// Device to compute on
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceName,
    #[command(flatten)]
    pub cost: Cost,
    /// Print one JSON object per image to stdout
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print a table to stdout with one line per image and class, and columns separated by commas
    #[arg(long)]
    pub csv: bool,
    /// Draw the images with their most probable class on a contact sheet, a PNG or JPEG file
    #[arg(long, value_name = "FILE.png")]
    pub sheet: Option<PathBuf>,
    /// Write the input of the last layer for each image, one row per image in the order of the output. With --out, an
    /// image that cannot be read has a row of NaN
    #[arg(long, value_name = "FILE.npy", visible_alias = "features")]
    pub embed: Option<PathBuf>,
    /// Write the predictions to this table: .csv, .jsonl or .parquet
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "sheet"])]
    pub out: Option<PathBuf>,
    /// Add the network's outputs before softmax to the table
    #[arg(long, requires = "out")]
    pub logits: bool,
    /// Split of a data set to predict [default: test, otherwise validation]
    #[arg(long, value_name = "NAME", requires = "out")]
    pub split: Option<String>,
    /// Images per batch on each rank
    #[arg(long, value_name = "N", default_value = "32", value_parser = positive, requires = "out")]
    pub batch: usize,
    /// Allow ranks to share a GPU
    #[arg(long, requires = "out")]
    pub share_gpu: bool,
    /// Compute threads per rank [default: from the rank's cores; 1 with a GPU]
    #[arg(long, value_name = "N", value_parser = thread_count, requires = "out")]
    pub threads: Option<usize>,
    /// Threads per rank that read images [default: from the cores without compute threads]
    #[arg(long, value_name = "N", value_parser = thread_count, requires = "out")]
    pub loader_threads: Option<usize>,
    #[command(flatten)]
    pub stall: Stall,
}

/// Classifies the images. Unreadable images are reported at the end with exit code 1.
pub fn run(args: &Args) -> Result<(), Failure> {
    let request = ModelRequest { file: args.model.clone(), best: args.best, ema: args.ema, sealed: args.sealed };
    let (limits, test_time) = (args.cost.limits(), args.views.test_time());
    let reading = ReadingRequest { limits, test_time, layout: args.layout, by_page: args.pages };
    if let Some(out) = &args.out {
        return many(args, request, reading, out);
    }
    let stall = args.stall.limits();
    let _watch = data_tools::watch(StallLimits { warn: stall.warn, abort: stall.abort });
    let mut predictor = launch::predictor(args.device.0, &request, &reading)?;
    let wanted = ClassSelection { top: args.top, threshold: args.threshold };
    wanted.check(predictor.label_kind(), &args.model)?;
    let files = pictures(&args.images, predictor.is_raw(), &mut std::io::stdin().lock())?;
    check_outputs(args, &files)?;
    check_sheet(args, &files, predictor.is_raw())?;
    let images = images(files, args.pages, &reading.limits);
    predictor.notes().iter().for_each(|note| screen::say(note));
    let mut output = Output::new(args, images.len(), predictor.as_ref())?;
    let mut failures = Vec::new();
    for picture in &images {
        match predictor.predict(picture, wanted) {
            Ok(prediction) => output.add(predictor.as_ref(), picture, &prediction)?,
            Err(error) => failures.push(error.to_string()),
        }
    }
    failures.extend(output.finish()?);
    if failures.is_empty() { Ok(()) } else { Err(Failure::failed(failures.join("\n"))) }
}

/// Number of images that a message names.
const NAMED: usize = 20;

/// Predicts the images on all ranks and writes the table.
fn many(args: &Args, model: ModelRequest, reading: ReadingRequest, out: &Path) -> Result<(), Failure> {
    set_wait_policy()?;
    loaders::sigbus::install().map_err(Failure::failed)?;
    let request = ManyRequest {
        model,
        images: args.images.clone(),
        split: args.split.clone(),
        reading,
        wanted: ClassSelection { top: args.top, threshold: args.threshold },
        logits: args.logits,
        out: out.to_path_buf(),
        features: args.embed.clone(),
        batch: args.batch,
        device: args.device.0,
        share_gpu: args.share_gpu,
        threads: args.threads,
        loader_threads: args.loader_threads,
        stall: args.stall.limits(),
    };
    let Some(done) = launch::predict_many(&request, &mut std::io::stdin().lock())? else { return Ok(()) };
    let ManySummary { images, kept, failures } = done;
    let kept = if kept > 0 { format!(", {kept} of them kept from an earlier attempt") } else { String::new() };
    screen::say(&format!("{}: {}{kept}", out.display(), plural(images, "image")));
    if failures.is_empty() {
        return Ok(());
    }
    let more = failures.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("and {more} more; the table lists all of them in its column error"));
    let named: Vec<String> = failures.into_iter().take(NAMED).chain(more).collect();
    Err(Failure::failed(named.join("\n")))
}

/// Rejects output files that cannot be written, or that would overwrite another file.
fn check_outputs(args: &Args, images: &[PathBuf]) -> Result<(), Failure> {
    let inputs: Vec<&Path> = images.iter().chain([&args.model]).map(PathBuf::as_path).collect();
    let outputs = [(&args.sheet, &data_tools::SHEET), (&args.embed, &NPY)];
    let mut named = outputs.into_iter().filter_map(|(path, content)| Some((path.as_deref()?, content)));
    named.try_for_each(|(path, content)| overwrite::check(path, content, &inputs)).map_err(Failure::usage)
}

/// Returns an error if `--sheet` cannot draw an image in `images`. `raw` is true if the model also reads other files than PNG and JPEG.
fn check_sheet(args: &Args, images: &[PathBuf], raw: bool) -> Result<(), Failure> {
    if !raw || args.sheet.is_none() {
        return Ok(());
    }
    // A file that cannot be read is reported later, with its reason.
    match images.iter().find(|path| is_picture(path).is_ok_and(|picture| !picture)) {
        None => Ok(()),
        Some(path) => Err(Failure::usage(format!(
            "--sheet draws only PNG and JPEG files, and {} is another kind of file; leave --sheet out",
            printable(&path.to_string_lossy())
        ))),
    }
}

/// The destinations of the predictions.
struct Output<'a> {
    args: &'a Args,
    sheet: Option<ContactSheet>,
    /// A message for each image that was predicted but could not be drawn on the sheet.
    not_drawn: Vec<String>,
    /// The table of features. Created with the first image, because its features determine the number of columns.
    table: Option<NpyWriter>,
}

impl<'a> Output<'a> {
    fn new(args: &'a Args, images: usize, predictor: &dyn Predict) -> Result<Self, Failure> {
        let sheet = match &args.sheet {
            Some(out) => Some(ContactSheet::new(out, images, args.cost.limits()).map_err(Failure::usage)?),
            None => None,
        };
        if args.csv {
            let targets: String = predictor.names().iter().map(|name| format!(",{}", field(name))).collect();
            match predictor.label_kind() {
                LabelKind::Numbers => print(format!("image{targets}"))?,
                LabelKind::OneClass | LabelKind::Classes => print("image,rank,label,class,probability")?,
            }
        }
        Ok(Self { args, sheet, not_drawn: Vec::new(), table: None })
    }

    fn add(&mut self, predictor: &dyn Predict, picture: &Picture, prediction: &Prediction) -> Result<(), Failure> {
        let is_numbers = predictor.label_kind() == LabelKind::Numbers;
        match is_numbers {
            true => show_numbers(self.args, picture, prediction)?,
            false => show(self.args, picture, prediction)?,
        }
        if let Some(sheet) = &mut self.sheet {
            let named = if predictor.label_kind() == LabelKind::OneClass { 1 } else { prediction.classes.len() };
            let classes = prediction.classes.iter().take(named);
            let words = classes.map(|(_, name, p)| match is_numbers {
                true => format!("{name} {}", short(*p)),
                false => format!("{:.0}% {name}", 100.0 * p),
            });
            let words: Vec<String> = words.collect();
            let words = if words.is_empty() { "no class".to_string() } else { words.join("; ") };
            let added = sheet.add(&picture.path, &words);
            self.not_drawn.extend(added.err().map(|error| format!("{error}; the sheet is without this image")));
        }
        if let Some(file) = &self.args.embed {
            let features = predictor.features()?;
            if self.table.is_none() {
                self.table = Some(NpyWriter::create(file, features.len())?);
            }
            self.table.iter_mut().try_for_each(|table| table.add(&features))?;
        }
        Ok(())
    }

    /// Writes the files that need all images. Writes nothing if no image could be read. Returns a message for each image that is not on
    /// the sheet.
    fn finish(self) -> Result<Vec<String>, Failure> {
        if let Some(sheet) = self.sheet.filter(|sheet| !sheet.is_empty()) {
            sheet.write().map_err(Failure::failed)?;
        }
        self.table.map_or(Ok(()), NpyWriter::finish)?;
        Ok(self.not_drawn)
    }
}

/// Formats a predicted number. Predictions are exact to about seven digits.
fn short(number: f64) -> String {
    (number as f32).to_string()
}

/// Prints the predicted numbers of an image.
fn show_numbers(args: &Args, picture: &Picture, prediction: &Prediction) -> Result<(), Failure> {
    let (size, image) = (prediction.resized_from.map(size_in_words), picture.name());
    if args.json {
        let numbers = prediction.classes.iter().map(|(_, name, number)| (name.clone(), (*number).into()));
        let numbers: serde_json::Map<String, serde_json::Value> = numbers.collect();
        return print(serde_json::json!({"image": image, "targets": numbers, "resized_from": size}));
    }
    if args.csv {
        let numbers: String = prediction.classes.iter().map(|(_, _, number)| format!(",{}", short(*number))).collect();
        return print(format!("{}{numbers}", field(&image)));
    }
    print(title(&image, &size.map_or(String::new(), |size| format!(" (resized from {size})"))))?;
    let mut lines = prediction.classes.iter();
    lines.try_for_each(|(_, name, number)| print(format!("  {}  {}", printable(name), short(*number))))
}

fn show(args: &Args, picture: &Picture, prediction: &Prediction) -> Result<(), Failure> {
    let size = prediction.resized_from.map(size_in_words);
    // JSON cannot represent a name that is not UTF-8, so its invalid bytes become replacement characters, as on a
    // terminal.
    let image = picture.name();
    if args.json {
        let class =
            |(i, name, p): &(usize, String, f64)| serde_json::json!({"label": i, "class": name, "probability": p});
        let classes: Vec<_> = prediction.classes.iter().map(class).collect();
        return print(serde_json::json!({"image": image, "classes": classes, "resized_from": size}));
    }
    if args.csv {
        let rows = prediction.classes.iter().zip(1..);
        let mut lines =
            rows.map(|((label, name, p), rank)| format!("{},{rank},{label},{},{p}", field(&image), field(name)));
        return lines.try_for_each(print);
    }
    let note = size.map_or(String::new(), |size| format!(" (resized from {size})"));
    print(title(&image, &note))?;
    if prediction.classes.is_empty() {
        return print(format!("  no class above {:.2} %", 100.0 * args.threshold.unwrap_or(0.5)));
    }
    prediction.classes.iter().try_for_each(|(_, name, p)| print(format!("  {:>6.2} %  {}", 100.0 * p, printable(name))))
}

/// Formats the line of an image. Line breaks in its name are escaped.
fn title(image: &str, note: &str) -> String {
    format!("{}{note}", printable(image))
}

/// Formats a size, width first.
fn size_in_words((height, width): (u32, u32)) -> String {
    format!("{width}x{height}")
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_width_comes_first() {
        assert_eq!(size_in_words((20, 30)), "30x20");
    }

    #[test]
    fn a_line_break_in_a_name_breaks_no_line() {
        assert_eq!(title("a\nb.png", " (resized from 3x2)"), "a\\u000ab.png (resized from 3x2)");
    }

    /// A name that is not UTF-8 is printed in all formats.
    #[test]
    fn any_name_of_an_image_is_shown() {
        let name = OsStr::from_bytes(b"w\xff.jpg");
        for form in [None, Some("--json"), Some("--csv")] {
            let line = ["trireme", "predict", "model.h5"].map(OsStr::new).into_iter().chain([name]);
            let cli = Cli::try_parse_from(line.chain(form.map(OsStr::new))).unwrap();
            let Some(Command::Predict(args)) = cli.command else { panic!("{form:?}") };
            let prediction = Prediction { classes: vec![(3, "cat".into(), 0.5)], resized_from: Some((20, 30)) };
            show(&args, &Picture { path: args.images[0].clone(), page: None }, &prediction).unwrap();
        }
    }
}
