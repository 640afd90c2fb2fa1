//! The shapes of a split's images, by the headers of a few of them and by the sizes that dataset.json has.

use crate::decode::{self, Exif};
use crate::error::Error;
use crate::fault::Fault;
use crate::spec::{ImageSpec, Images};
use crate::storage::shard::Access;
use crate::storage::split::Split;

/// The most images whose headers are read.
const SAMPLES: u64 = 64;

impl Split {
    /// The shapes of the images, from at most 64 of them, spread evenly: one size, or various sizes. They are various, too, where
    /// dataset.json says that they differ: a few odd ones among many would not be among the 64.
    ///
    /// The answer is for plans and early errors; code that needs one size checks each image. Unreadable samples are skipped unless all
    /// of the 64 are.
    pub fn images(&self) -> Result<Images, Error> {
        self.images_as(Exif::Applied)
    }

    /// [`Split::images`] for lists of transforms that turn images or do not.
    pub fn images_as(&self, exif: Exif) -> Result<Images, Error> {
        let mut found = self.shape(0, exif).map(Images::Fixed);
        for id in self.sampled_ids() {
            if let Ok(spec) = self.shape(id, exif) {
                found = Ok(found.map_or(Images::Fixed(spec), |images| common(images, spec)));
            }
        }
        let differ = |spec: ImageSpec| self.sizes().is_some_and(|sizes| tells_apart(sizes, spec, exif));
        found.map(|images| match images {
            Images::Fixed(spec) if differ(spec) => Images::Varied { channels: spec.channels },
            other => other,
        })
    }

    /// The shape of all images, from the same sample alone: it is for messages that name an image.
    ///
    /// # Errors
    /// Names the first image that differs from those before it.
    pub fn one_size(&self) -> Result<ImageSpec, Error> {
        let first = self.shape(0, Exif::Applied)?;
        for id in self.sampled_ids() {
            let got = self.shape(id, Exif::Applied)?;
            if (got.height, got.width) != (first.height, first.width) {
                return Err(self.fault(id, Fault::Odd { first, got }));
            }
        }
        Ok(first)
    }

    /// The sampled ids after the first.
    fn sampled_ids(&self) -> impl Iterator<Item = u64> {
        let len = self.len();
        let samples = len.min(SAMPLES);
        (1..samples).map(move |i| (u128::from(i) * u128::from(len) / u128::from(samples)) as u64)
    }

    /// The shape of one image, by its header. A shard that is opened only for this is closed again.
    fn shape(&self, id: u64, exif: Exif) -> Result<ImageSpec, Error> {
        let (number, record) = self.locate(id)?;
        let own;
        let shard = match self.mapped_shard(number) {
            Some(shard) => shard,
            None => {
                own = self.open(number, Access::Map)?;
                &own
            }
        };
        let mut copy = Vec::new();
        let (example, _) = self.read(shard, record, shard.record(record, &mut copy)?)?;
        decode::spec_as(&example, exif).map_err(|fault| shard.fault(record, fault))
    }
}

/// Whether images whose least and greatest stored sizes are these have other sizes than `seen`, which a few of them have. Stored sizes are
/// those before turning: images of one size, some of which were stored lying and some standing, differ in them, too.
fn tells_apart([least, greatest]: [[u32; 2]; 2], seen: ImageSpec, exif: Exif) -> bool {
    let (short, long) = (seen.height.min(seen.width), seen.height.max(seen.width));
    let is_turned = exif == Exif::Applied && (least, greatest) == ([short; 2], [long; 2]);
    least != greatest && !is_turned
}

/// The shapes of images like `images` together with one of shape `spec`.
fn common(images: Images, spec: ImageSpec) -> Images {
    // among coloured images, grey ones count as coloured
    let channels = images.channels().max(spec.channels);
    match images {
        Images::Fixed(first) if (first.height, first.width) == (spec.height, spec.width) => {
            Images::Fixed(ImageSpec { channels, ..spec })
        }
        _ => Images::Varied { channels },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_turning_explains_are_one_size() {
        let seen = ImageSpec::new(60, 90, 3);
        let differ = |sizes, exif| tells_apart(sizes, seen, exif);
        assert!(differ([[60, 90], [60, 91]], Exif::Applied) && !differ([[60, 90], [60, 90]], Exif::Applied));
        assert!(!differ([[60, 60], [90, 90]], Exif::Applied) && differ([[60, 60], [90, 90]], Exif::Ignored));
    }
}
