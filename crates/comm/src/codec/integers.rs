//! What the integer codecs share: room for sums, and their description for devices.

use base::code_spec::{CodeFormat, CodeSpec, CodedTensor, IntegerCodes};

use super::bucket::{Bucket, Tensor};
use super::entry::Settings;
use super::lanes::{Lanes, head_room};
use super::packed;

/// The description of an integer codec: tensors that are not exempt go as codes in lanes, with `lanes` = (largest code, deviations to
/// clip at); everything else, or without lanes all, goes as `exact`.
pub fn describe(bucket: &Bucket, settings: &Settings, lanes: Option<(u32, f32)>) -> CodeSpec {
    let &Settings { workers, error_feedback: feedback, .. } = settings;
    let part = |t: &Tensor| CodedTensor {
        range: t.range.clone(),
        elems: t.elems,
        parameter: t.parameter,
        in_lanes: lanes.is_some() && !t.exempt,
    };
    let (steps, clip) = lanes.unwrap_or((1, 0.0));
    let Lanes { bits, per_word } = Lanes::holding(2 * u64::from(steps) * workers as u64);
    let (parts, room) = (bucket.tensors.iter().map(part).collect(), head_room(workers));
    let format =
        CodeFormat::Integers(IntegerCodes { parts, workers, room, bits, per_word, block: packed::BLOCK, steps, clip });
    CodeSpec { len: bucket.len, feedback, format }
}
