//! From a converted sample to the bytes of its record.

use crate::source::{Sample, Source};
use loaders::Example;
use loaders::example::{self, LabelList};

/// The key of the WordNet id of a class, as in TensorFlow's ImageNet scripts.
const SYNSET: &str = "image/class/synset";

/// Appends the record of a sample to `out`.
pub(super) fn encode(source: &dyn Source, sample: &Sample, out: &mut Vec<u8>) {
    if source.multi_label() {
        return encode_several(source, sample, out);
    }
    let example = sample.example(source.text(sample.label), source.label_offset());
    let synset = source.synset(sample.label).map(|synset| (SYNSET, synset));
    example::encode_with(&example, synset.as_slice(), out);
}

/// The same of an image that may have several classes: all labels in one list, and the names of the classes parted by "; ".
fn encode_several(source: &dyn Source, sample: &Sample, out: &mut Vec<u8>) {
    let offset = source.label_offset();
    let stored: Vec<i64> = sample.labels.iter().map(|label| i64::from(*label) + offset).collect();
    let names: Vec<&str> = sample.labels.iter().map(|label| source.text(*label)).collect();
    let mut list = LabelList::default();
    list.set(&stored);
    let text = names.join("; ");
    let example = sample.example(&text, offset);
    example::encode(&Example { label: list.first(), labels: list.labels(), ..example }, out);
}
