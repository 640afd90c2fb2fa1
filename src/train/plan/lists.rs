//! Whether the lists of transforms of a recipe and the splits of its data set fit each other.

use std::path::Path;

use super::pixel_values::{Agreement, PixelValues};
use crate::error::Error;
use loaders::{ImageSpec, Images, Pipeline, Split};

/// Refuses a data set that is neither in `dir` nor, as a recipe may have it, `beside` the recipe.
pub fn data_is_there(dir: &Path, beside: Option<&Path>) -> Result<(), Error> {
    let Some(beside) = beside.filter(|_| !dir.exists()) else { return Ok(()) };
    Err(Error::Usage(format!(
        "data: there is no folder {}, as seen from the recipe's folder, and no {}, as seen from the current directory; name the data set \
         by --data",
        beside.display(),
        dir.display()
    )))
}

/// Refuses a split whose images have another size than those of `train`, which are `images`, where the list takes one size only.
pub fn one_size(data: &str, split: &Split, preprocess: &Pipeline, images: Images) -> Result<(), Error> {
    let (name, other) = (split.name(), split.images_as(preprocess.exif())?);
    if !matches!(preprocess.input(), Images::Fixed(_)) || other == images {
        return Ok(());
    }
    let what = format!(
        "images of split train are {images}, those of {name} {other}; they must have one size, or augment.eval must begin with \
         resize(size) and center_crop(size)"
    );
    Err(Error::DataSet { data: data.into(), what })
}

/// Refuses lists whose images have other channels, or of which neither is the larger. Says that there are two sizes.
pub fn sizes_fit(augment: &Pipeline, preprocess: &Pipeline) -> Result<Option<String>, Error> {
    let [train, eval] = [augment, preprocess].map(Pipeline::output);
    if train == eval {
        return Ok(None);
    }
    let within = |a: ImageSpec, b: ImageSpec| a.height <= b.height && a.width <= b.width;
    if train.channels != eval.channels || !(within(train, eval) || within(eval, train)) {
        return Err(Error::Usage(format!(
            "augment.train makes images of {train} and augment.eval of {eval}; end both with the same size, or one with a larger size of \
             the same channels"
        )));
    }
    Ok(Some(format!("sizes: trained on images of {train}, scored on {eval}")))
}

/// Refuses lists of which one normalises and the other does not: scores would be those of noise. Gives a warning where the numbers differ.
pub fn values_agree(augment: &Pipeline, preprocess: &Pipeline) -> Result<Option<String>, Error> {
    let [train, eval] = [augment, preprocess].map(|pipeline| PixelValues::of(&pipeline.ops()));
    let what = format!("augment.train makes {train}, and augment.eval {eval}");
    match train.agreement(&eval) {
        Agreement::Same => Ok(None),
        Agreement::OtherNumbers => Ok(Some(format!(
            "warning: {what}: a network is scored on values that it was not trained on; give the same normalize in both"
        ))),
        Agreement::FarApart => {
            Err(Error::Usage(format!("{what}; end both with the same normalize, or leave it out of both")))
        }
    }
}
