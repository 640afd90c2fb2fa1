//! Entry point of the fuzz target `raw`.

use super::{Page, RawFormat, RawOptions};
use loaders::Limits;

/// Decodes a file as a raw image: the first page, and all pages.
///
/// # Panics
///
/// Panics if the number of values does not match the shape.
pub fn raw(file: &[u8]) {
    // A small limit keeps each fuzzing run fast.
    let limits = Limits { seconds: 1.0, ..Limits::with_memory(32 << 20) };
    for page in [Page::Number(1), Page::All] {
        let options = RawOptions { page, nan_as_zero: true, ..RawOptions::default() };
        let Some(format) = RawFormat::detect(file, true) else { return };
        let decode = || format.decode(file, &options, &limits).and_then(|image| image.prepared(&options));
        if let Ok(image) = loaders::guarded_with(decode, |panic| panic.to_string()) {
            let pixels = image.height as usize * image.width as usize;
            assert_eq!(image.bytes.len(), pixels * image.channels as usize * image.dtype.bytes());
        }
    }
}
