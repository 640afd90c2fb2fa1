//! Entry point of the fuzz target `recode`.

use super::recode::{Recoder, Target};
use crate::options::ConvertOptions;
use crate::source::Sample;
use loaders::{Format, Limits, decode};

/// Recodes an image file with different options.
///
/// # Panics
///
/// Panics if training could not read the result.
pub fn recode(file: &[u8]) {
    let plain = ConvertOptions::default();
    for options in [
        plain.clone(),
        ConvertOptions { entry_points: true, ..plain.clone() },
        ConvertOptions { resize: Some(16), ..plain.clone() },
        ConvertOptions { resize: Some(16), raw: true, ..plain },
    ] {
        // A small limit keeps each fuzzing run fast.
        let limits = Limits::with_memory(32 << 20);
        let Ok(mut recoder) = Recoder::new(Target::new(&options, false), limits) else { return };
        let mut sample = Sample { encoded: file.to_vec(), format: Format::Jpeg, ..Sample::default() };
        if recoder.recode(&mut sample).is_ok() {
            let (example, mut decoder) = (sample.example("", 0), decode::Decoder::default());
            let read = decoder.open(&example).and_then(|stored| decoder.check(stored, &example));
            assert!(read.is_ok(), "{read:?}");
            let entered = decode::check_entry_points(&example);
            assert!(entered.is_ok(), "{entered:?}");
            assert!(recoder.pixels(&sample).is_ok());
        }
    }
}
