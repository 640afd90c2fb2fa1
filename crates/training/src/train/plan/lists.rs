//! Checks that the lists of transforms and the splits of the data set fit together.

use std::path::Path;

use loaders::{ImageSpec, Images, Pipeline, Split};

use super::pixel_values::{Agreement, PixelValues};
use crate::error::Error;

/// Returns an error if the data set exists neither in `dir` nor in the recipe's folder (`beside`).
pub fn data_is_there(dir: &Path, beside: Option<&Path>) -> Result<(), Error> {
    let Some(beside) = beside.filter(|_| !dir.exists()) else { return Ok(()) };
    Err(Error::Usage(format!(
        "data: there is no folder {}, as seen from the recipe's folder, and no {}, as seen from the current directory; name the data set \
         by --data",
        beside.display(),
        dir.display()
    )))
}

/// Returns an error if the list accepts a single image size and the split's images differ from those of `train`, which are `images`.
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

/// Returns an error if the lists produce different numbers of channels, or if neither size contains the other. Otherwise returns a note if
/// the sizes differ.
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

/// Returns an error if only a single list normalizes, because the scores would be meaningless. Returns a warning if both normalize
/// differently.
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
