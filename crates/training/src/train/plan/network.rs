//! The network of a run: of the catalogue, out of a file of one's own, or as a model file has it. A run reads its file once; from then on
//! it goes by the text with every number, which stands in checkpoints and in model.h5.

use std::path::Path;

use formats::checkpoint::{ModelFile, Tensor};
use formats::interop::onnx;
use formats::interop::onnx::Network;
use loaders::{ImageSpec, regular};
use net::NetSpec;
use net::Shape;
use net::models;
use net::net_toml;

use super::named_file::is_there;
use crate::error::Error;

/// A network out of a file.
#[derive(Clone, Debug)]
pub struct Defined {
    /// Its layers.
    pub net: NetSpec,
    /// They as text, with every number.
    pub text: String,
    /// The file as it was read, for a copy beside the recipe; none for one that came with a checkpoint.
    pub copy: Option<Vec<u8>>,
    /// Weights that training starts from: of an ONNX file.
    pub start: Vec<Tensor>,
    /// What a user should know, a line each.
    pub notes: Vec<String>,
}

/// A network of the catalogue for images of this shape.
pub fn network(model: &str, image: ImageSpec, classes: usize) -> Result<NetSpec, Error> {
    models::build(model, shape_of(image), classes).ok_or_else(|| Error::Usage(models::unknown(model)))
}

/// The same, refused where the images are too small for it.
///
/// # Errors
/// With the least size that it takes, and what to do.
pub fn fitting(model: &str, image: ImageSpec, classes: usize) -> Result<NetSpec, Error> {
    let net = network(model, image, classes)?;
    let Err(error) = net.shapes() else { return Ok(net) };
    let (ImageSpec { height, width, channels }, usual) = (image, models::input(model).map_or(0, |input| input.h));
    let fits =
        |side: u32| network(model, ImageSpec::new(side, side, channels), classes).is_ok_and(|net| net.shapes().is_ok());
    match (1..=usual as u32).find(|side| fits(*side)) {
        Some(least) if height.min(width) < least => Err(Error::Usage(format!(
            "network {model} takes images of {least} x {least} pixels at least, and the transforms make {width} x {height} (layer {}: {}); \
             make them larger in augment.train and augment.eval (resize, random_resized_crop), or choose a network for small images \
             (`trireme models`)",
            error.layer, error.why
        ))),
        // what else there is the graph says
        _ => Ok(net),
    }
}

/// The network of a model file or a checkpoint.
///
/// # Errors
/// For a name that is not in the catalogue, and a description that is damaged.
pub fn of_model(model: &ModelFile) -> Result<NetSpec, Error> {
    let [c, h, w] = model.input;
    let classes = model.classes.len();
    match model.definition.is_empty() {
        true => network(&model.network, ImageSpec::new(h as u32, w as u32, c as u32), classes),
        false => of_text(&model.definition, &model.network, Shape::image(c, h, w), classes),
    }
}

impl Defined {
    /// Reads the file of a network, for these images and classes.
    ///
    /// # Errors
    /// With file, line and node of what is wrong.
    pub fn read(path: &Path, name: &str, image: ImageSpec, classes: usize) -> Result<Self, Error> {
        is_there("cannot read the network", path, "name a file beside the recipe, or a network of `trireme models`")?;
        let cannot = |source| Error::File { action: "read the network", path: path.to_path_buf(), source };
        let bytes = regular::read(path).map_err(cannot)?;
        let input = shape_of(image);
        if path.extension().is_some_and(|end| end == "onnx") {
            return Self::of_onnx(bytes, path, name, input, classes);
        }
        let file = path.display().to_string();
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::Usage(format!("{file}: the text is not UTF-8")))?;
        let wrong = |error: net_toml::Error| Error::Usage(error.to_string());
        let net =
            net_toml::Definition::read(text, &file).and_then(|net| net.build(name, input, classes)).map_err(wrong)?;
        Ok(Self { copy: Some(bytes), ..Self::new(net, classes) })
    }

    /// The network as a checkpoint has it.
    pub fn of_checkpoint(text: &str, name: &str, image: ImageSpec, classes: usize) -> Result<Self, Error> {
        Ok(Self::new(of_text(text, name, shape_of(image), classes)?, classes))
    }

    fn new(net: NetSpec, classes: usize) -> Self {
        let text = net_toml::write(&net, classes, net_toml::Classes::Number);
        Self { net, text, copy: None, start: Vec::new(), notes: Vec::new() }
    }

    fn of_onnx(bytes: Vec<u8>, path: &Path, name: &str, input: Shape, classes: usize) -> Result<Self, Error> {
        let refuse = |why: String| Error::Usage(format!("{}: {why}", path.display()));
        let survey = onnx::of_bytes(&bytes, path).map_err(|error| Error::Usage(error.to_string()))?;
        let Network { mut net, classes: own, mut tensors, notes } =
            survey.network().map_err(|error| Error::Usage(error.to_string()))?;
        let mut notes: Vec<String> = notes.iter().map(|note| format!("{name}: {note}")).collect();
        if own != classes {
            let changed = net_toml::set_classes(&mut net, classes);
            let Some(layer) = changed.first() else {
                return Err(refuse(format!(
                    "it has {own} classes, the data set {classes}, and no last layer that could be replaced"
                )));
            };
            tensors.retain(|tensor| {
                !changed.iter().any(|layer| tensor.0.rsplit_once('.').is_some_and(|(own, _)| own == layer))
            });
            notes.push(format!(
                "{name}: its last layer, {layer}, starts at random: it has {own} classes, the data set {classes}"
            ));
        }
        let there = std::mem::replace(&mut net.input, input);
        // the same checks as for any other file, for these images
        let text = net_toml::write(&net, classes, net_toml::Classes::Number);
        let net = of_text(&text, name, input, classes)?;
        let fit = fits(&net, &tensors);
        fit.map_err(|why| {
            refuse(format!("{why}; it is for images of {there}, and the transforms make {input}: make them the same"))
        })?;
        Ok(Self { start: tensors, notes, copy: Some(bytes), ..Self::new(net, classes) })
    }
}

/// A network out of its text with every number.
fn of_text(text: &str, name: &str, input: Shape, classes: usize) -> Result<NetSpec, Error> {
    let file = format!("the description of {name}");
    let net = net_toml::Definition::read(text, &file).and_then(|net| net.build(name, input, classes));
    net.map_err(|error| Error::Failed(error.to_string()))
}

/// Whether each tensor is one of the network's.
fn fits(net: &NetSpec, tensors: &[Tensor]) -> Result<(), String> {
    let all = net.tensors().map_err(|error| error.to_string())?;
    let own: std::collections::BTreeMap<&String, &Vec<usize>> =
        all.parameters.iter().chain(&all.running).map(|(name, shape)| (name, shape)).collect();
    let odd = tensors.iter().find(|(name, shape, _)| own.get(name) != Some(&shape));
    match odd {
        Some((name, shape, _)) => {
            let wanted = own.get(name).map_or("none of that name".to_string(), |shape| format!("{shape:?}"));
            Err(format!("its {name} has the shape {shape:?}, and the network needs {wanted}"))
        }
        None => Ok(()),
    }
}

/// The shape of a network's input for such images.
pub fn shape_of(image: ImageSpec) -> Shape {
    Shape::image(image.channels as usize, image.height as usize, image.width as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_are_too_small_are_told_the_least_size() {
        let of = |model, side| fitting(model, ImageSpec::new(side, side, 3), 10);
        let error = of("alexnet", 32).unwrap_err();
        let text = error.to_string();
        for part in ["network alexnet takes images of 63 x 63", "make 32 x 32", "256x1x1", "augment.train"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(error.code(), 2);
        assert!(of("alexnet", 62).is_err() && of("alexnet", 63).is_ok());
        assert!(of("inception_v3", 32).is_err() && of("resnet20", 32).is_ok());
    }
}
