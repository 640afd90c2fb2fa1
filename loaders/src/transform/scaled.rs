//! A list of transforms for images of another size: each size in it by the same factor.

use crate::transform::arguments::pixels;
use crate::transform::call;
use crate::transform::size::Size;

/// Transforms that begin with sizes in pixels, and how many they begin with.
const SIZED: [(&str, usize); 8] = [
    ("center_crop", 1),
    ("corner_crop", 1),
    ("cutout", 1),
    ("inception_crop", 1),
    ("random_crop", 1),
    ("random_resized_crop", 1),
    ("resize", 1),
    ("scale_jitter", 2),
];

/// The list with every size multiplied by `to / from`, rounded to the nearest and at least 1. Offsets such as the padding of `pad_crop`
/// stay.
///
/// # Errors
/// For a list that has no size.
pub fn scaled(list: &[String], from: u32, to: u32) -> Result<Vec<String>, String> {
    let resized: Vec<Option<String>> = list.iter().map(|text| one(text, from, to)).collect();
    if resized.iter().all(Option::is_none) {
        let why = "no transform in the list has a size; put resize(size) or random_resized_crop(size) at its head";
        return Err(why.to_owned());
    }
    Ok(resized.into_iter().zip(list).map(|(new, old)| new.unwrap_or_else(|| old.clone())).collect())
}

/// A call with its sizes scaled; none for a transform without any, or one that cannot be read.
fn one(text: &str, from: u32, to: u32) -> Option<String> {
    let (name, inside) = text.trim().strip_suffix(')')?.split_once('(')?;
    let (_, sizes) = SIZED.into_iter().find(|(sized, _)| *sized == name.trim())?;
    let words = inside.split(',').map(str::trim).enumerate();
    let changed: Option<Vec<String>> =
        words.map(|(place, word)| if place < sizes { size(word, from, to) } else { Some(word.to_owned()) }).collect();
    Some(format!("{}({})", name.trim(), changed?.join(", ")))
}

/// `256` or `192x256`, scaled.
fn size(word: &str, from: u32, to: u32) -> Option<String> {
    let side = |side: u32| (f64::from(side) * f64::from(to) / f64::from(from)).round().max(1.0) as u32;
    match call::size(word) {
        Some(Size { height, width }) => Some(format!("{}x{}", side(height), side(width))),
        None => pixels(word.parse().ok()?, 1).ok().map(|pixels| side(pixels).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::ops;

    fn of(list: &[&str], from: u32, to: u32) -> Result<Vec<String>, String> {
        scaled(&list.iter().map(ToString::to_string).collect::<Vec<_>>(), from, to)
    }

    #[test]
    fn every_size_goes_by_the_same_factor() {
        let list = ["resize(256, bicubic)", "random_crop(224)", "pad_crop(4)", "flip(0.3)", "cutout(16)", "normalize"];
        let small = ["resize(146, bicubic)", "random_crop(128)", "pad_crop(4)", "flip(0.3)", "cutout(9)", "normalize"];
        assert_eq!(of(&list, 224, 128).unwrap(), small);
        let list = ["scale_jitter(256, 512)", "random_resized_crop( 192x256, 0.35, lanczos )"];
        assert_eq!(
            of(&list, 192, 96).unwrap(),
            ["scale_jitter(128, 256)", "random_resized_crop(96x128, 0.35, lanczos)"]
        );
        assert_eq!(of(&["cutout(1)"], 224, 32).unwrap(), ["cutout(1)"], "never nothing");
    }

    #[test]
    fn a_list_without_a_size_is_refused() {
        for list in [&["pad_crop(4)", "flip", "normalize"][..], &[], &["resize"], &["resize(big)"]] {
            assert!(of(list, 32, 16).unwrap_err().contains("random_resized_crop(size)"), "{list:?}");
        }
    }

    #[test]
    fn all_of_them_exist() {
        let names = ops::names();
        assert!(SIZED.iter().all(|(name, _)| names.contains(name)));
    }
}
