//! Parses a transform such as `name(1, 2.5)`, `name(192x256)` or `name(2, bilinear)`, and checks its arguments.

use std::fmt;

use base::text::plural;

use crate::spec::ImageSpec;

/// A transform's name and arguments.
#[derive(Debug, PartialEq)]
pub(super) struct Call<'a> {
    pub name: &'a str,
    pub arguments: Arguments<'a>,
}

/// The arguments in the parentheses. They must come in the order of these fields.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Arguments<'a> {
    /// A size that is written as `192x256`.
    pub size: Option<Size>,
    pub numbers: Vec<f64>,
    /// Named choices, such as `bilinear`.
    pub words: Vec<&'a str>,
}

/// Parses `name`, `name()` or `name(argument, ...)`.
pub(super) fn parse(text: &str) -> Result<Call<'_>, String> {
    let (name, words) = split(text)?;
    Ok(Call { name, arguments: arguments(&words)? })
}

/// Splits a call into its name and its arguments' texts.
pub(super) fn split(text: &str) -> Result<(&str, Vec<&str>), String> {
    let text = text.trim();
    let (name, inside) = match text.split_once('(') {
        None => (text, ""),
        Some((name, rest)) => (name.trim(), rest.strip_suffix(')').ok_or("expected `)` at the end")?.trim()),
    };
    Ok((name, inside.split(',').map(str::trim).filter(|_| !inside.is_empty()).collect()))
}

/// Parses the arguments' texts.
pub(super) fn arguments<'a>(words: &[&'a str]) -> Result<Arguments<'a>, String> {
    let mut arguments = Arguments::default();
    words.iter().try_for_each(|word| arguments.push(word))?;
    Ok(arguments)
}

/// Writes a call in canonical form, without redundant spaces and parentheses. Two texts with the same canonical form
/// mean the same transform. A text that cannot be parsed is returned unchanged.
pub fn canonical(text: &str) -> String {
    let Ok(Call { name, arguments: Arguments { size, numbers, words } }) = parse(text) else { return text.to_owned() };
    let size = size.map(|Size { height, width }| format!("{height}x{width}"));
    let numbers = numbers.iter().map(f64::to_string);
    let all: Vec<String> = size.into_iter().chain(numbers).chain(words.into_iter().map(str::to_owned)).collect();
    if all.is_empty() { name.to_owned() } else { format!("{name}({})", all.join(", ")) }
}

impl<'a> Arguments<'a> {
    fn push(&mut self, text: &'a str) -> Result<(), String> {
        if let Some(number) = text.parse().ok().filter(|number: &f64| number.is_finite()) {
            return match self.words.is_empty() {
                true => {
                    self.numbers.push(number);
                    Ok(())
                }
                false => Err(format!("the number {text} follows a name, but numbers must come before names")),
            };
        }
        if let Some(size) = size(text) {
            let first = self.size.is_none() && self.numbers.is_empty() && self.words.is_empty();
            self.size = Some(size);
            return first.then_some(()).ok_or(format!("the size {text} must be the first argument"));
        }
        match text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            true => {
                self.words.push(text);
                Ok(())
            }
            false => Err(not_a_number(text)),
        }
    }

    /// Returns the numbers. It is an error if there are other arguments.
    pub fn only_numbers(&self) -> Result<&[f64], String> {
        match (self.size, self.words.first()) {
            (None, None) => Ok(&self.numbers),
            (_, Some(word)) => Err(not_a_number(word)),
            (Some(size), None) => Err(not_a_number(&format!("{}x{}", size.height, size.width))),
        }
    }

    /// Returns the numbers. It is an error if there is a size such as `192x256`, but words are allowed.
    pub fn no_size(&self) -> Result<&[f64], String> {
        match self.size {
            None => Ok(&self.numbers),
            Some(Size { height, width }) => Err(not_a_number(&format!("{height}x{width}"))),
        }
    }

    /// Returns the value for the only word, or the first of `choices` if there is no word.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, String> {
        let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
        match *self.words {
            [] => Ok(choices[0].1),
            [word] => {
                let chosen = choices.iter().find(|(name, _)| *name == word);
                chosen.map(|(_, value)| *value).ok_or_else(|| format!("expected {}, got \"{word}\"", names()))
            }
            [first, second, ..] => Err(format!("expected at most one name, got \"{first}\" and \"{second}\"")),
        }
    }
}

/// Parses a size such as `192x256`.
pub(super) fn size(text: &str) -> Option<Size> {
    let (height, width) = text.split_once('x')?;
    Some(Size { height: height.parse().ok()?, width: width.parse().ok()? })
}

fn not_a_number(text: &str) -> String {
    format!("expected a number, got \"{}\"", text.escape_debug())
}

/// Returns the arguments if there are exactly `N`.
pub(super) fn exactly<const N: usize>(arguments: &[f64]) -> Result<[f64; N], String> {
    <[f64; N]>::try_from(arguments).map_err(|_| format!("expected {}, got {}", plural(N, "argument"), arguments.len()))
}

/// Parses the only argument, an integer number of pixels that is at least `least`.
pub(super) fn one_size(arguments: &[f64], least: u32) -> Result<u32, String> {
    let [size] = exactly(arguments)?;
    pixels(size, least)
}

/// Parses an integer number of pixels that is at least `least`.
pub(super) fn pixels(size: f64, least: u32) -> Result<u32, String> {
    // Larger images are not useful, and with this limit sums of sizes cannot overflow.
    whole(size, least, u16::MAX.into())
        .map_err(|_| format!("expected a whole number of pixels from {least} to {}, got {size}", u16::MAX))
}

/// Parses an integer from `least` to `most`.
pub(super) fn whole(number: f64, least: u32, most: u32) -> Result<u32, String> {
    if number.fract() != 0.0 || number < f64::from(least) || number > f64::from(most) {
        return Err(format!("expected a whole number from {least} to {most}, got {number}"));
    }
    Ok(number as u32)
}

/// Splits the arguments into the size at the start, `224` or `192x256`, and the numbers after it.
pub(super) fn size_first<'a>(arguments: &'a Arguments<'_>) -> Result<(Size, &'a [f64]), String> {
    match (arguments.size, &*arguments.numbers) {
        (Some(Size { height, width }), rest) => {
            pixels(height.into(), 1).and(pixels(width.into(), 1))?;
            Ok((Size { height, width }, rest))
        }
        (None, [side, rest @ ..]) => Ok((Size::square(pixels(*side, 1)?), rest)),
        (None, []) => Err("expected a size as the first argument".into()),
    }
}

/// Parses the only argument, a size.
pub(super) fn only_size(arguments: &Arguments<'_>) -> Result<Size, String> {
    let given = arguments.numbers.len() + arguments.words.len() + usize::from(arguments.size.is_some());
    match given {
        1 => size_first(arguments).map(|(size, _)| size),
        _ => Err(format!("expected 1 argument, got {given}")),
    }
}

/// Checks that the number is a probability.
pub(super) fn probability(number: f64) -> Result<f64, String> {
    match (0.0..=1.0).contains(&number) {
        true => Ok(number),
        false => Err(format!("expected a probability from 0 to 1, got {number}")),
    }
}

/// Parses the only argument, a probability. Returns `default` if there is no argument.
pub(super) fn only_probability(arguments: &[f64], default: f64) -> Result<f64, String> {
    match *arguments {
        [] => Ok(default),
        [p] => probability(p),
        _ => Err(format!("expected 0 or 1 arguments, got {}", arguments.len())),
    }
}

/// Parses the optional probability after another argument. Returns `default` if there is no probability.
pub(super) fn probability_after_one(rest: &[f64], default: f64) -> Result<f64, String> {
    match rest.len() {
        0 | 1 => only_probability(rest, default),
        n => Err(format!("expected 1 or 2 arguments, got {}", n + 1)),
    }
}

/// Returns an error if there are arguments.
pub(super) fn no_arguments(arguments: &[f64]) -> Result<(), String> {
    match arguments.len() {
        0 => Ok(()),
        n => Err(format!("expected no argument, got {n}")),
    }
}

/// Returns an error unless images have three channels.
pub(super) fn only_rgb(input: ImageSpec) -> Result<(), String> {
    match input.channels {
        3 => Ok(()),
        n => Err(format!("expected images with 3 channels, got {n}")),
    }
}

/// Height and width. Displayed as `224` if they are equal, otherwise as `192x256`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub height: u32,
    pub width: u32,
}

impl Size {
    pub const fn square(side: u32) -> Self {
        Self { height: side, width: side }
    }

    /// Returns the size of an image after its short side is resized to `side`. The long side is rounded down.
    pub fn with_short_side(side: u32, height: u32, width: u32) -> Self {
        // Computed in f64, like Python's `int(n * long / short)`.
        let long = |short: u32, long: u32| (f64::from(side) * f64::from(long) / f64::from(short)) as u32;
        match width <= height {
            true => Self { height: long(width, height), width: side },
            false => Self { height: side, width: long(height, width) },
        }
    }

    pub const fn is_square(self) -> bool {
        self.height == self.width
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_square() {
            true => write!(f, "{}", self.height),
            false => write!(f, "{}x{}", self.height, self.width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    #[test]
    fn calls_are_parsed_into_name_and_arguments() {
        let call = |name, numbers: &[f64]| {
            Ok(Call { name, arguments: Arguments { numbers: numbers.to_vec(), ..Default::default() } })
        };
        assert_eq!(parse("flip"), call("flip", &[]));
        assert_eq!(parse(" flip( ) "), call("flip", &[]));
        assert_eq!(parse("contrast(0.2, 1.8)"), call("contrast", &[0.2, 1.8]));
        let arguments = parse("random_resized_crop(192x256, 0.5, bicubic)").unwrap().arguments;
        let size = Some(Size { height: 192, width: 256 });
        assert_eq!(arguments, Arguments { size, numbers: vec![0.5], words: vec!["bicubic"] });
        for (text, part) in [
            ("pad_crop(4", "expected `)`"),
            ("pad_crop(4,)", "got \"\""),
            ("pad_crop(-inf)", "got \"-inf\""),
            ("pad_crop(*4)", "got \"*4\""),
            ("resize(0.5, 3x4)", "size 3x4"),
            ("resize(3x4, 3x4)", "size 3x4"),
            ("resize(bicubic, 3)", "number 3"),
        ] {
            assert!(parse(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn equal_calls_have_the_same_canonical_text() {
        for (text, wanted) in [
            (" normalize( ) ", "normalize"),
            ("pad_crop( 4.0 )", "pad_crop(4)"),
            ("random_resized_crop(192x256,0.50,bicubic)", "random_resized_crop(192x256, 0.5, bicubic)"),
            ("pad_crop(4", "pad_crop(4"),
        ] {
            assert_eq!(canonical(text), wanted);
            assert_eq!(canonical(wanted), wanted);
        }
    }

    #[test]
    fn unexpected_words_and_sizes_are_refused() {
        let of = |text| parse(text).unwrap().arguments;
        assert_mentions(&of("pad_crop(four)").only_numbers().unwrap_err(), &["number", "\"four\""]);
        assert_mentions(&of("pad_crop(inf)").only_numbers().unwrap_err(), &["number", "\"inf\""]);
        assert_mentions(&of("pad_crop(3x4)").only_numbers().unwrap_err(), &["number", "\"3x4\""]);
        assert_mentions(&of("rotation(3x4)").no_size().unwrap_err(), &["number", "\"3x4\""]);
        let choices = [("nearest", 1), ("bilinear", 2)];
        assert_eq!(of("rotation(3)").choice(&choices), Ok(1));
        assert_eq!(of("rotation(3, bilinear)").choice(&choices), Ok(2));
        let refused = |text| of(text).choice(&choices).unwrap_err();
        assert_mentions(&refused("rotation(lanczos)"), &["nearest", "bilinear", "\"lanczos\""]);
        assert_mentions(&refused("rotation(bilinear, nearest)"), &["\"bilinear\"", "\"nearest\""]);
    }
}
