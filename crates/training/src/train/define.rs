//! Distributes a network from a file to all ranks. Only rank 0 reads the file and broadcasts its description. If it is
//! an ONNX file with weights, rank 0 later copies the weights to its parameters, which are then broadcast.

use std::path::Path;

use backend::Backend;
use loaders::folder_of;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::init::table;
use crate::train::plan::run::Run;
use crate::train::plan::source::{PixelValues, Source};
use crate::train::plan::split_labels::SplitLabels;
use crate::train::save::folder::NetworkCopy;
use crate::train::save::resume::Head;
use crate::train::save::{model, output, snapshot};

/// Broadcasts the network that rank 0 reads. Collective. Returns an error on all ranks if the file is invalid.
pub fn share(session: &Session, source: &mut Source) -> Result<(), Error> {
    session.agree(if session.is_root() { source.define() } else { Ok(()) })?;
    if session.world.size == 1 {
        return Ok(());
    }
    let text = source.file_network.as_ref().map(|file_network| file_network.text.clone());
    let text = session.comm.broadcast("the network", session.is_root().then_some(&text))?;
    let adopted = match text {
        Some(text) if !session.is_root() => source.adopt(&text),
        _ => Ok(()),
    };
    session.agree(adopted)
}

/// Sets the parameters on all ranks to the weights in the network's file, if the run starts from them. Collective.
pub fn begin<B: Backend>(session: &Session, run: &mut Run<B>) -> Result<(), Error> {
    let start = run
        .source
        .file_network
        .as_mut()
        .map(|file_network| std::mem::take(&mut file_network.start))
        .unwrap_or_default();
    let starts = session.is_root() && !start.is_empty() && run.recipe.model_weights();
    let starts = match session.world.size {
        1 => starts,
        _ => session
            .comm
            .broadcast("whether weights come from the network's file", session.is_root().then_some(&starts))?,
    };
    if !starts {
        return Ok(());
    }
    let values = start.iter().map(|(name, _, values)| (name.as_str(), values.as_slice())).collect();
    session.agree(model::set_some(&mut run.graph, &values))?;
    snapshot::share(session, run)
}

/// Returns notes about the network's file for the log. `fresh` is false for a resumed run.
pub fn notes(source: &Source, fresh: bool) -> Vec<String> {
    source.file_network.as_ref().map_or_else(Vec::new, |file_network| {
        let from = (fresh && !file_network.start.is_empty() && source.recipe.model_weights()).then(|| {
            format!("weights: training starts from the {} tensors of {}", file_network.start.len(), source.recipe.model)
        });
        let warning = from.as_ref().and_then(|_| normalization_warning(source));
        file_network.notes.iter().cloned().chain(from).chain(warning).collect()
    })
}

/// Returns a warning if the images are not normalized, or with the mean and standard deviation of this data set, although
/// training starts from the weights of the network's file.
fn normalization_warning(source: &Source) -> Option<String> {
    let (model, bands) = (&source.recipe.model, &source.manifest.bands);
    let values = PixelValues::from_transforms(&source.augment.ops(), bands);
    if values.are_bytes() {
        return Some(format!(
            "warning: augment.train makes {values}, but nearly all networks were trained on normalised images. If this is true for \
             {model}, end augment.train and augment.eval with the normalize that it was trained with"
        ));
    }
    // other programs' mean and std are for 8-bit grey or RGB images
    let key = table::bare_normalize(&source.recipe).filter(|_| !bands.need_version())?;
    Some(format!(
        "warning: {key}: \"normalize\" uses the mean and standard deviation of this data set. If the weights of {model} were trained with \
         those of another data set, give these numbers, for example \"{}\" for torchvision's weights",
        table::TORCHVISION
    ))
}

/// Returns the copy of the network's file for the output directory.
pub fn copy(source: &Source) -> Option<NetworkCopy<'_>> {
    let file_network = source.file_network.as_ref()?;
    let text = source.recipe.model.ends_with(".toml").then_some(file_network.text.as_bytes());
    let bytes = file_network.copy.as_deref().or(text)?;
    Some(NetworkCopy { name: source.recipe.model.as_str(), bytes })
}

/// Copies the network's file from the folder of the run that this run resumes from, if the output directory `out` does not have it.
/// A checkpoint has only the description of the network, which is not enough to write an ONNX file again. Returns a note if
/// the file cannot be copied.
pub fn copy_of_run(source: &Source, head: &Head, out: &Path) -> Option<String> {
    let name = source.file.is_some().then_some(source.recipe.model.as_str())?;
    let copy = out.join(name);
    if copy.exists() {
        return None;
    }
    let from = folder_of(&head.path).join("..").join(name);
    output::copy(&from, &copy).err().map(|error| {
        format!(
            "note: {} cannot be trained again without {name}, which cannot be copied from {}: {error}",
            out.join("recipe.toml").display(),
            from.display()
        )
    })
}

/// Broadcasts the labels that rank 0 reads, if the recipe needs them. Collective. Returns an error on all ranks if a
/// record has no label.
pub fn share_classes(session: &Session, source: &mut Source) -> Result<(), Error> {
    if !SplitLabels::are_needed(&source.recipe) {
        return Ok(());
    }
    session.agree(if session.is_root() { source.read_labels() } else { Ok(()) })?;
    if session.world.size > 1 {
        let labels = session
            .comm
            .broadcast("the labels", source.train_labels.as_ref().map(|train_labels| &train_labels.labels))?;
        source.train_labels = Some(SplitLabels::from_labels(labels, source.train.classes()));
    }
    Ok(())
}
