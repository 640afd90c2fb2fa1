//! From a converted sample to the bytes of its record.

use crate::source::{Sample, Source};
use loaders::example;

/// The key of the WordNet id of a class, as in TensorFlow's ImageNet scripts.
const SYNSET: &str = "image/class/synset";

/// Writes the record of a sample to `out`, which is overwritten.
pub(super) fn encode(source: &dyn Source, sample: &Sample, out: &mut Vec<u8>) {
    out.clear();
    let example = sample.example(source.text(sample.label), source.label_offset());
    let synset = source.synset(sample.label).map(|synset| (SYNSET, synset));
    example::encode_with(&example, synset.as_slice(), out);
}
