//! The shapes of a split's images, by the headers of a few of them.

use crate::decode::{self, Exif};
use crate::error::Error;
use crate::fault::Fault;
use crate::spec::{ImageSpec, Images};
use crate::storage::shard::Access;
use crate::storage::split::Split;

/// The most images whose headers are read.
const SAMPLES: u64 = 64;

impl Split {
    /// The shapes of the images, from at most 64 of them, spread evenly: one size, or various sizes.
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
        found
    }

    /// The shape of all images, from the same sample.
    ///
    /// # Errors
    /// Names the first image that differs from those before it.
    pub fn one_size(&self) -> Result<ImageSpec, Error> {
        let expected = self.shape(0, Exif::Applied)?;
        for id in self.sampled_ids() {
            let got = self.shape(id, Exif::Applied)?;
            if (got.height, got.width) != (expected.height, expected.width) {
                return Err(self.fault(id, Fault::ImageSize { expected, got }));
            }
        }
        Ok(expected)
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
