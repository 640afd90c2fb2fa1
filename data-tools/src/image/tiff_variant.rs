//! Checks a TIFF's tags for variants that the `image` crate misreads or rejects with an unhelpful message.

use std::io::Cursor;
use tiff::ColorType;
use tiff::decoder::Decoder;
use tiff::tags::Tag;

/// The tag for the bit order in each byte.
const FILL_ORDER: Tag = Tag::FillOrder;
/// Values for the PhotometricInterpretation tag.
const WHITE_IS_ZERO: u16 = 0;
const BLACK_IS_ZERO: u16 = 1;
const RGB: u16 = 2;
const PALETTE: u16 = 3;
const INKS: u16 = 5;
const YCBCR: u16 = 6;
const LAB: u16 = 8;
const ICC_LAB: u16 = 9;
const ITU_LAB: u16 = 10;
/// Values that mark the fourth band as opacity.
const ALPHA: [u16; 2] = [1, 2];

/// Rejects unsupported variants. Also rejects extra bands unless `may_lose` allows dropping them.
pub(super) fn check(file: &[u8], may_lose: bool) -> Result<(), String> {
    // the decoder reports files that cannot be opened
    let Ok(mut tiff) = Decoder::new(Cursor::new(file)) else { return Ok(()) };
    let number = |tiff: &mut Decoder<_>, tag| tiff.find_tag_unsigned::<u16>(tag).ok().flatten();
    let refused = |what: String| {
        Err(format!("a TIFF {what}, which is not read; save it as PNG, or as a TIFF of 8 bits in RGB or grey"))
    };
    if number(&mut tiff, FILL_ORDER) == Some(2) {
        return refused("with the bits of each byte in reverse order (FillOrder 2)".into());
    }
    let bands = usize::from(number(&mut tiff, Tag::SamplesPerPixel).unwrap_or(1));
    let bits = tiff.find_tag_unsigned_vec::<u16>(Tag::BitsPerSample).ok().flatten().unwrap_or_else(|| vec![1]);
    let depth = bits.first().copied().unwrap_or(1);
    let colours = match number(&mut tiff, Tag::PhotometricInterpretation) {
        Some(WHITE_IS_ZERO | BLACK_IS_ZERO) if !([8, 16, 32].contains(&depth) || depth == 1 && bands == 1) => {
            return refused(format!("in grey of {depth} bits"));
        }
        Some(WHITE_IS_ZERO | BLACK_IS_ZERO) => 1,
        Some(RGB) if ![8, 16, 32].contains(&depth) => return refused(format!("in RGB of {depth} bits")),
        Some(PALETTE) => return refused(format!("with a palette of {depth} bits")),
        Some(YCBCR) if tiff.colortype().is_err() || matches!(tiff.colortype(), Ok(ColorType::YCbCr(_))) => {
            return refused(format!("in YCbCr of {depth} bits"));
        }
        Some(LAB | ICC_LAB | ITU_LAB) => return refused(format!("in CIELAB of {depth} bits")),
        Some(INKS) => 4,
        _ => 3,
    };
    let extra = tiff.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).ok().flatten().unwrap_or_default();
    let kept = colours + extra.iter().filter(|kind| ALPHA.contains(kind)).count();
    if bands > kept && !may_lose {
        return Err(format!(
            "a TIFF of {bands} bands, of which data sets hold {}: --to-8bit keeps the first ones and drops the others",
            colours.min(3)
        ));
    }
    Ok(())
}
