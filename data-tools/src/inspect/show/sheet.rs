//! The contact sheet: pictures in rows, a few words under each.

use super::font;
use image::{Rgb, RgbImage, imageops};

/// Pixels of the sheet to one of a letter.
const INK: usize = 2;
/// Lines of words under a picture, unless its words have more line breaks.
const LINES: usize = 2;
/// Letters that fit under even the narrowest picture.
const LETTERS: usize = 11;
/// Free pixels about each cell, and between picture and words.
const GAP: usize = 8;
const PAPER: Rgb<u8> = Rgb([250, 250, 250]);
const BLACK: Rgb<u8> = Rgb([30, 30, 30]);

/// A picture and the words below it.
pub(super) struct Cell {
    pub picture: RgbImage,
    pub words: String,
}

/// Puts the cells into rows of `columns`.
pub(super) fn lay_out(cells: &[Cell], columns: usize) -> RgbImage {
    let width = cells.iter().map(|c| c.picture.width() as usize).max().unwrap_or(0).max(LETTERS * font::ADVANCE * INK);
    let height = cells.iter().map(|c| c.picture.height() as usize).max().unwrap_or(0);
    let line = font::HEIGHT * INK;
    let lines = cells.iter().map(|cell| cell.words.lines().count()).max().unwrap_or(0).max(LINES);
    let (across, down) = (width + GAP, height + GAP + lines * line + GAP);
    let rows = cells.len().div_ceil(columns);
    let mut sheet = RgbImage::from_pixel((GAP + columns * across) as u32, (GAP + rows * down) as u32, PAPER);
    for (number, cell) in cells.iter().enumerate() {
        let (left, top) = (GAP + number % columns * across, GAP + number / columns * down);
        // Pictures are centred, and aligned at the bottom.
        let (picture_width, picture_height) = cell.picture.dimensions();
        let x = left + (width - picture_width as usize) / 2;
        let y = top + height - picture_height as usize;
        imageops::replace(&mut sheet, &cell.picture, x as i64, y as i64);
        for (i, words) in wrapped(&cell.words, width / (font::ADVANCE * INK)).iter().enumerate() {
            let long = (words.chars().count() * font::ADVANCE * INK).saturating_sub(INK);
            write(&mut sheet, words, left + (width - long) / 2, top + height + GAP + i * line);
        }
    }
    sheet
}

/// The words in lines of at most `letters` letters, broken at line breaks, else at spaces where there are any, into `LINES` at most; what
/// does not fit ends in two dots.
fn wrapped(words: &str, letters: usize) -> Vec<String> {
    if words.contains('\n') {
        return words.lines().map(|line| cut(line.trim(), letters)).collect();
    }
    let mut rest: Vec<char> = words.trim().chars().collect();
    let mut lines = Vec::new();
    while !rest.is_empty() && lines.len() < LINES {
        let mut end = rest.len().min(letters);
        if rest.len() > letters {
            if lines.len() + 1 == LINES {
                rest.truncate(letters - 2);
                rest.extend("..".chars());
            } else if let Some(space) = rest[..=letters].iter().rposition(|c| *c == ' ') {
                end = space.max(1);
            }
        }
        let later = rest.split_off(end);
        lines.push(rest.into_iter().collect::<String>().trim_end().to_string());
        rest = later.into_iter().skip_while(|c| *c == ' ').collect();
    }
    lines
}

/// At most so many letters.
fn cut(line: &str, letters: usize) -> String {
    match line.chars().count() > letters {
        true => line.chars().take(letters - 2).chain("..".chars()).collect(),
        false => line.into(),
    }
}

fn write(sheet: &mut RgbImage, words: &str, left: usize, top: usize) {
    for (i, letter) in words.chars().enumerate() {
        for y in 0..font::HEIGHT * INK {
            for x in 0..font::WIDTH * INK {
                if font::is_inked(letter, y / INK, x / INK) {
                    let at = (left + i * font::ADVANCE * INK + x, top + y);
                    sheet.put_pixel(at.0 as u32, at.1 as u32, BLACK);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_at_spaces_and_end_in_dots() {
        assert_eq!(wrapped("cat", 11), ["cat"]);
        assert_eq!(wrapped("Ankle boot", 10), ["Ankle boot"]);
        assert_eq!(wrapped("tench, Tinca tinca", 11), ["tench,", "Tinca tinca"]);
        assert_eq!(wrapped("T-shirt/top and trousers", 11), ["T-shirt/top", "and trous.."]);
        assert_eq!(wrapped("incomprehensibilities", 11), ["incomprehen", "sibilities"]);
        assert_eq!(wrapped("incomprehensibilities, all of them", 11), ["incomprehen", "sibilitie.."]);
        assert_eq!(wrapped("cat\n97% incomprehensible", 11), ["cat", "97% incom.."]);
        assert_eq!(wrapped("  ", 11), [""; 0]);
        assert_eq!(wrapped("e\u{301}e\u{e9}", 11), ["e\u{301}e\u{e9}"]);
    }

    #[test]
    fn cells_stand_in_rows_with_their_words_below() {
        let ink = Rgb([200, 0, 0]);
        let cell = |w, h| Cell { picture: RgbImage::from_pixel(w, h, ink), words: "I".into() };
        let sheet = lay_out(&[cell(132, 20), cell(100, 10), cell(4, 4)], 2);
        // Two cells of 132 across; two rows of 20, words and gaps.
        assert_eq!(sheet.dimensions(), (8 + 2 * 140, 8 + 2 * (20 + 8 + 36 + 8)));
        assert_eq!(*sheet.get_pixel(8, 8), ink);
        assert_eq!(*sheet.get_pixel(8 + 131, 8 + 19), ink);
        // The second picture is centred and stands on the same line.
        assert_eq!(*sheet.get_pixel(148 + 16, 8 + 19), ink);
        assert_eq!(*sheet.get_pixel(148 + 15, 8 + 19), PAPER);
        assert_eq!(*sheet.get_pixel(148 + 16, 8 + 9), PAPER);
        // An I: its stem in the third of five columns.
        let left = 8 + (132 - 10) / 2;
        assert_eq!(*sheet.get_pixel(left + 4, 8 + 20 + 8 + 6), BLACK);
        assert_eq!(*sheet.get_pixel(left, 8 + 20 + 8 + 6), PAPER);
    }
}
