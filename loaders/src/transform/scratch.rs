//! A thread's working memory, reused from image to image.

use std::time::Instant;

use crate::decode::Decoder;
use crate::limits::Limits;
use crate::transform::work::Work;

/// A thread's working memory, reused from image to image.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) decoder: Decoder,
    pub(super) pixels: Vec<u8>,
    pub(super) floats: Vec<f32>,
    pub(super) work: Work,
    pub(super) clock: Clock,
}

/// Notes when an image was decoded, if that is wanted.
#[derive(Debug, Default)]
pub(super) struct Clock {
    wanted: bool,
    decoded: Option<Instant>,
}

impl Clock {
    /// Notes that the image is decoded.
    pub fn decoded(&mut self) {
        if self.wanted {
            self.decoded = Some(Instant::now());
        }
    }
}

impl Scratch {
    /// For images that are read within these limits.
    pub fn new(limits: Limits) -> Self {
        Self { decoder: Decoder::new(limits), ..Self::default() }
    }

    /// Sets whether the end of decoding the next image is noted.
    pub(crate) fn time_decoding(&mut self, wanted: bool) {
        self.clock = Clock { wanted, decoded: None };
    }

    /// When the last image was decoded.
    pub(crate) fn decoded(&self) -> Option<Instant> {
        self.clock.decoded
    }
}
