//! Values of summaries (tensorflow/core/framework/summary.proto): numbers, texts, pictures, distributions.

use super::super::message::Message;
use super::super::spread::Spread;

/// `DT_FLOAT` and `DT_STRING` of tensorflow/core/framework/types.proto.
pub(super) const FLOAT: u64 = 1;
const STRING: u64 = 7;

/// `DATA_CLASS_TENSOR` and `DATA_CLASS_BLOB_SEQUENCE`.
pub(super) const TENSOR: u64 = 2;
const BLOBS: u64 = 3;

/// A number.
pub(super) fn scalar(tag: &str, value: f64) -> Message {
    Message::new().text(1, tag).float(2, value as f32)
}

/// A value of a plugin (metadata 9: plugin_data 1, data_class 4) with a tensor (8).
pub(super) fn of_plugin(tag: &str, plugin: Message, class: u64, tensor: Message) -> Message {
    let metadata = Message::new().message(1, plugin).number(4, class);
    Message::new().text(1, tag).message(9, metadata).message(8, tensor)
}

/// A text in Markdown.
pub(super) fn text(tag: &str, text: &str) -> Message {
    let tensor = Message::new().number(1, STRING).message(2, Message::new()).text(8, text);
    of_plugin(tag, Message::new().text(1, "text"), TENSOR, tensor)
}

/// Picture files of this width and height.
pub(super) fn images(tag: &str, (width, height): (u32, u32), files: &[&[u8]]) -> Message {
    let dim = Message::new().number(1, 2 + files.len() as u64);
    let tensor = Message::new().number(1, STRING).message(2, Message::new().message(2, dim));
    let tensor = tensor.text(8, &width.to_string()).text(8, &height.to_string());
    let tensor = files.iter().fold(tensor, |tensor, file| tensor.blob(8, file));
    of_plugin(tag, Message::new().text(1, "images"), BLOBS, tensor)
}

/// A distribution: `HistogramProto` (5) with least 1, most 2, count 3, sum 4, sum of squares 5, upper edges 6, counts 7.
pub(super) fn histogram(tag: &str, elements: u64, spread: &Spread) -> Message {
    let count = elements as f64;
    let squares = count * (spread.deviation.powi(2) + spread.mean.powi(2));
    let counts: Vec<f64> = spread.bins.iter().map(|count| *count as f64).collect();
    let histogram = Message::new()
        .double(1, spread.least)
        .double(2, spread.most)
        .double(3, count)
        .double(4, count * spread.mean)
        .double(5, squares)
        .doubles(6, &spread.edges())
        .doubles(7, &counts);
    Message::new().text(1, tag).message(5, histogram)
}
