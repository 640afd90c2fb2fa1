//! The teacher of distillation: a trained network that scores each training batch in addition to the network in training. Every rank reads
//! it from the same file and plans it on its own device before the first step.

use std::path::{Path, PathBuf};

use backend::Backend;
use engine::graph::BuildError;
use formats::checkpoint::ModelFile;
use loaders::record::masked_crc32c;
use loaders::transform::selected_bands;
use loaders::{Bands, LabelKind};
use net::NetSpec;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::plan::network::{check_exists, of_model, shape_of};
use crate::train::plan::phases::plan_size;
use crate::train::plan::run::Run;
use crate::train::plan::source::{Agreement, PixelValues, Source};
use crate::train::save::model;
use crate::train::save::output::ClassSources;
use crate::train::save::resume::Head;

/// What is known about the loaded teacher.
pub struct LoadedTeacher {
    /// The line for the log that describes the teacher.
    pub note: String,
    /// Checksum of the teacher's weights. A resumed run uses it to detect another teacher.
    pub checksum: String,
}

/// Loads the teacher, if the recipe names one. `from` is the checkpoint that the run resumes from. Collective. Returns
/// an error on all ranks if the file cannot be read, differs between ranks, or has changed since the run began. Also
/// returns an error if the teacher was trained on other classes, bands or image sizes, or with a very different
/// normalization.
pub fn begin<B: Backend>(
    session: &Session,
    run: &mut Run<B>,
    from: Option<&Head>,
) -> Result<Option<LoadedTeacher>, Error> {
    let Some(teacher) = &run.recipe.distill.teacher else { return Ok(None) };
    let path = file(Path::new(teacher));
    let model = session.agree(read(&path, run))?;
    let checksum = checksum(&model);
    session.same("the file of distill.teacher", &checksum, "start all ranks with the same file")?;
    session.agree(from.map_or(Ok(()), |head| unchanged(head, &path, &checksum)))?;
    session.agree(plan(run, &model))?;
    let other = other_values(&model, run).map(|text| format!("; warning: the teacher {text}")).unwrap_or_default();
    let note =
        format!("teacher: {} from {}, step {}, checksum {checksum}{other}", model.network, path.display(), model.step);
    Ok(Some(LoadedTeacher { note, checksum }))
}

/// Returns an error if the teacher has changed since the run began.
fn unchanged(head: &Head, path: &Path, checksum: &str) -> Result<(), Error> {
    let before = &head.progress.teacher;
    // a checkpoint of an earlier version has no checksum of the teacher, so there is nothing to compare
    if before.is_empty() || before == checksum {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--resume: {} is from a run with another teacher: expected weights with checksum {before}, got {checksum} in {}; restore the \
         file that the run began with",
        head.path.display(),
        path.display()
    )))
}

/// Returns the path of the teacher's model file. For the directory of a run this is its model.h5.
fn file(given: &Path) -> PathBuf {
    if given.is_dir() { given.join("model.h5") } else { given.to_path_buf() }
}

fn read<B: Backend>(path: &Path, run: &Run<B>) -> Result<ModelFile, Error> {
    check_exists(
        "distill.teacher: cannot read",
        path,
        "name the folder of a run, relative to the current directory, or the model.h5 in it",
    )?;
    let model = ModelFile::read(path).map_err(|error| Error::Failed(format!("distill.teacher: {error}")))?;
    if model.label_kind() != LabelKind::OneClass {
        return Err(Error::Usage(format!(
            "distill.teacher: {} is a model for images with several labels or with numbers, which cannot be a teacher; use a teacher for \
             images with one label",
            path.display()
        )));
    }
    let data = Path::new(&run.recipe.data);
    let sides = ClassSources { model: &model.classes, file: path, data };
    if let Some(difference) = sides.difference(run.source.train.class_names()) {
        let why = format!(
            "distill.teacher: the classes differ: {difference}; use a teacher that was trained on this data set"
        );
        return Err(Error::Usage(why));
    }
    let input = shape_of(run.source.augment.output());
    if model.input != [input.c, input.h, input.w] {
        let [c, h, w] = model.input;
        return Err(Error::Usage(format!(
            "distill.teacher: {} needs images of {c}x{h}x{w}, but the transforms make {input}; change the sizes in augment.train and \
             augment.eval to those of the teacher",
            path.display()
        )));
    }
    check_bands(&model, &run.source, path)?;
    let (there, here) = pixel_values(&model, &run.source);
    if there.agreement(&here) == Agreement::FarApart {
        return Err(Error::Usage(format!(
            "distill.teacher: {} was trained on images with {there}, but the transforms of this run make {here}, so its scores would be \
             meaningless; use the same normalize as the teacher (its transforms: {})",
            path.display(),
            model.preprocess.join(", ")
        )));
    }
    Ok(model)
}

/// Returns an error if the teacher was trained on another value type or on other bands than this run's network.
fn check_bands(model: &ModelFile, source: &Source, path: &Path) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::Usage(format!("distill.teacher: {} was trained on {what}", path.display())));
    let (there, here) = (&model.bands, &source.manifest.bands);
    if there.dtype != here.dtype {
        return refuse(format!(
            "images of {} values, but this data set has images of {} values; use a teacher that was trained on this data set",
            there.dtype, here.dtype
        ));
    }
    let own = source.augment.ops();
    let is_plain =
        |ops: &[String], bands: &Bands| !bands.need_version() && !ops.iter().any(|op| op.starts_with("select_bands"));
    if is_plain(&model.preprocess, there) && is_plain(&own, here) {
        return Ok(());
    }
    let kept = |ops: &[String], bands: &Bands, channels| {
        let kept = selected_bands(ops, bands, channels);
        kept.map_err(|why| Error::Usage(format!("distill.teacher: {}: {why}", path.display())))
    };
    let teacher = kept(&model.preprocess, there, model.image[0] as u32)?;
    let student = kept(&own, here, source.train.images_as(source.augment.exif())?.channels())?;
    let are_named = !there.names.is_empty() && !here.names.is_empty();
    let word = |band: usize, bands: &Bands| match bands.names.get(band) {
        Some(name) if are_named => format!("\"{}\"", base::text::printable(name)),
        _ => (band + 1).to_string(),
    };
    let words =
        |kept: &[usize], bands: &Bands| kept.iter().map(|&band| word(band, bands)).collect::<Vec<_>>().join(", ");
    let (teacher, student) = (words(&teacher, there), words(&student, here));
    match teacher == student {
        true => Ok(()),
        false => refuse(format!(
            "the bands {teacher}, but augment.train keeps the bands {student}; select the same bands in the same order"
        )),
    }
}

/// Returns the range of pixel values that the teacher's transforms produce from this run's images, and the range that this run's transforms
/// produce.
fn pixel_values(model: &ModelFile, source: &Source) -> (PixelValues, PixelValues) {
    let (bands, own) = (&source.manifest.bands, source.augment.ops());
    let selects = |op: &&String| op.starts_with("select_bands");
    // take the band selection from this run, because the teacher's data set may number its bands differently
    let theirs: Vec<String> =
        own.iter().filter(selects).chain(model.preprocess.iter().filter(|op| !selects(op))).cloned().collect();
    (PixelValues::from_transforms(&theirs, bands), PixelValues::from_transforms(&own, bands))
}

/// Returns a warning if the teacher was trained on images that were normalized differently. In distillation both networks get the images of
/// this run.
fn other_values<B: Backend>(model: &ModelFile, run: &Run<B>) -> Option<String> {
    let (there, here) = pixel_values(model, &run.source);
    let what = format!(
        "was trained on images with {there}, but the transforms of this run make {here}; use the same normalize as the teacher"
    );
    (there.agreement(&here) != Agreement::Same).then_some(what)
}

fn checksum(model: &ModelFile) -> String {
    let tensors = model.layers.iter().flat_map(|layer| &layer.tensors);
    let bytes: Vec<u8> = tensors.flat_map(|tensor| &tensor.2).flat_map(|value| value.to_le_bytes()).collect();
    format!("{:08x}", masked_crc32c(&bytes))
}

fn plan<B: Backend>(run: &mut Run<B>, model: &ModelFile) -> Result<(), Error> {
    let net = of_model(model)?;
    model::check(model, &model.layers, &net)?;
    // the teacher is planned for every image size of the run
    let largest = run.division.largest();
    let mut teacher = run.graph.inference_graph(NetSpec { input: run.source.largest_input(), ..net }, largest)?;
    let [train, scored] = [&run.source.augment, &run.source.preprocess].map(|pipeline| shape_of(pipeline.output()));
    for (input, batches) in [(train, run.division.sizes()), (scored, Vec::new())] {
        let named = |error: BuildError| Error::Usage(format!("distill.teacher: {error}"));
        plan_size(&mut teacher, input, largest, batches, named)?;
    }
    run.source.phases.plan(&mut teacher, &run.division)?;
    model::restore(&mut teacher, model)?;
    Ok(run.graph.teach(teacher)?)
}
