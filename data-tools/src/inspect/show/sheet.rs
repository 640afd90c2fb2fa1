//! Draws contact sheets (rows of pictures with captions) and matrices, using a bitmap font of 5 x 7 pixels.

use std::path::{Path, PathBuf};

use image::codecs::png::PngEncoder;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage, imageops};
use loaders::decode::Decoder;
use loaders::{Limits, Manifest, Split, regular};

use super::picture::{self, Cell, Viewer};
use crate::error::Error;
use crate::inspect::extract;

/// The highest number of pictures on a sheet.
pub(super) const MAX_CELLS: u64 = 1024;

/// Size of a font pixel on the sheet.
const FONT_SCALE: usize = 2;
/// The number of text lines below a picture, unless the text has more line breaks.
const LINES: usize = 2;
/// Minimum width of a cell in letters, so that captions also have room under narrow pictures.
const SHEET_LETTERS: usize = 11;
/// Margin around each cell, and between picture and caption, in pixels.
const SHEET_GAP: usize = 8;
const SHEET_PAPER: Rgb<u8> = Rgb([250, 250, 250]);
const BLACK: Rgb<u8> = Rgb([30, 30, 30]);

/// Draws the cells in rows of `columns`.
pub(super) fn lay_out(cells: &[Cell], columns: usize) -> RgbImage {
    let width =
        cells.iter().map(|c| c.picture.width() as usize).max().unwrap_or(0).max(SHEET_LETTERS * ADVANCE * FONT_SCALE);
    let height = cells.iter().map(|c| c.picture.height() as usize).max().unwrap_or(0);
    let line = HEIGHT * FONT_SCALE;
    let lines = cells.iter().map(|cell| cell.words.lines().count()).max().unwrap_or(0).max(LINES);
    let (across, down) = (width + SHEET_GAP, height + SHEET_GAP + lines * line + SHEET_GAP);
    let rows = cells.len().div_ceil(columns);
    let mut sheet =
        RgbImage::from_pixel((SHEET_GAP + columns * across) as u32, (SHEET_GAP + rows * down) as u32, SHEET_PAPER);
    for (number, cell) in cells.iter().enumerate() {
        let (left, top) = (SHEET_GAP + number % columns * across, SHEET_GAP + number / columns * down);
        // Pictures are centred horizontally and aligned at the bottom.
        let (picture_width, picture_height) = cell.picture.dimensions();
        let x = left + (width - picture_width as usize) / 2;
        let y = top + height - picture_height as usize;
        imageops::replace(&mut sheet, &cell.picture, x as i64, y as i64);
        for (i, words) in wrapped(&cell.words, width / (ADVANCE * FONT_SCALE)).iter().enumerate() {
            let long = (words.chars().count() * ADVANCE * FONT_SCALE).saturating_sub(FONT_SCALE);
            write_words(&mut sheet, words, left + (width - long) / 2, top + height + SHEET_GAP + i * line);
        }
    }
    sheet
}

/// Returns the number of cells per row. All epochs of a sample stay in one row, and the sheet becomes somewhat wider
/// than high.
pub(super) fn columns(samples: usize, epochs: usize) -> usize {
    if epochs >= 8 {
        return epochs;
    }
    let wished = ((samples * epochs) as f64 * 1.5).sqrt().round() as usize;
    (wished / epochs).clamp(1, samples) * epochs
}

/// Breaks a text into lines of at most `letters` letters. A text with line breaks keeps its lines. Other text is broken
/// at spaces into at most `LINES` lines. Text that does not fit is cut and ends in two dots.
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

/// Cuts a line to at most `letters` letters and marks the cut with two dots.
fn cut(line: &str, letters: usize) -> String {
    match line.chars().count() > letters {
        true => line.chars().take(letters - 2).chain("..".chars()).collect(),
        false => line.into(),
    }
}

fn write_words(sheet: &mut RgbImage, words: &str, left: usize, top: usize) {
    for (i, letter) in words.chars().enumerate() {
        write_letter(sheet, letter, |x, y| (left + i * ADVANCE * FONT_SCALE + x, top + y));
    }
}

/// A contact sheet to which pictures are added.
pub struct ContactSheet {
    out: PathBuf,
    format: ImageFormat,
    cells: Vec<Cell>,
    limits: Limits,
}

impl ContactSheet {
    /// Creates a sheet for up to `pictures` pictures. It will be written to `out` as PNG or JPEG, depending on the file
    /// name. `limits` apply to each picture.
    ///
    /// # Errors
    ///
    /// Returns an error if the file name has a different ending or if there are too many pictures for a sheet.
    pub fn new(out: &Path, pictures: usize, limits: Limits) -> Result<Self, Error> {
        let format = extract::format_of(out)?;
        match pictures as u64 > MAX_CELLS {
            true => {
                Err(Error::Usage(format!("a sheet can show up to {MAX_CELLS} pictures, but {pictures} were requested")))
            }
            false => Ok(Self { out: out.to_path_buf(), format, cells: Vec::new(), limits }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Adds a PNG or JPEG file with a caption.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or decoded.
    pub fn add(&mut self, path: &Path, words: &str) -> Result<(), Error> {
        let refuse = |what: String| Error::input(path, what);
        let file = regular::read(path).map_err(|error| refuse(error.to_string()))?;
        let mut decoder = Decoder::new(self.limits);
        let stored = decoder.open_file(&file).map_err(|fault| refuse(fault.to_string()))?;
        let spec = stored.spec();
        let mut pixels = Vec::new();
        decoder.reduced(stored, &file, 1, spec.channels, &mut pixels).map_err(|fault| refuse(fault.to_string()))?;
        pixels.truncate(spec.values());
        let picture = picture::picture_from_bytes(&pixels, spec)
            .ok_or_else(|| refuse(format!("too few pixels for the shape {spec}")))?;
        self.cells.push(Cell::new(picture, words.into()));
        Ok(())
    }

    /// Adds the stored image of a record with a caption of two lines.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be read or decoded.
    pub fn add_record(&mut self, split: &Split, id: u64, lines: &[String; 2]) -> Result<(), Error> {
        let picture = Viewer::new(&Manifest::default(), split, &[], 0, &[])?.render(id, 0)?;
        self.cells.push(Cell::new(picture, lines.join("\n")));
        Ok(())
    }

    /// Writes the sheet. An existing sheet is replaced atomically.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn write(&self) -> Result<(), Error> {
        let sheet = lay_out(&self.cells, columns(self.cells.len().max(1), 1));
        extract::write_sheet(&self.out, &DynamicImage::ImageRgb8(sheet), self.format)
    }
}

/// Width of a letter, and distance from one letter to the next.
const WIDTH: usize = 5;
const ADVANCE: usize = 6;
/// Height of a letter. The last two rows are for descenders.
const HEIGHT: usize = ROWS + DESCENDER_ROWS;
const ROWS: usize = 7;
const DESCENDER_ROWS: usize = 2;
/// Letters with descenders. They are drawn two rows lower.
const DESCENDERS: &str = "gpqy,;";

/// Returns true if the letter `c` covers the pixel at `row` and `column`.
fn is_inked(c: char, row: usize, column: usize) -> bool {
    let glyph = (c as usize).checked_sub(0x20).and_then(|i| GLYPHS.get(i)).unwrap_or(&BOX);
    let lowered = if DESCENDERS.contains(c) { DESCENDER_ROWS } else { 0 };
    let bits = row.checked_sub(lowered).and_then(|row| glyph.get(row)).copied().unwrap_or(0);
    bits >> (WIDTH - 1 - column) & 1 == 1
}

const BOX: [u8; ROWS] = [0x1f, 0x11, 0x11, 0x11, 0x11, 0x11, 0x1f];

/// The characters from space to tilde. Each byte is a row, and bit 4 is the leftmost column.
#[rustfmt::skip]
const GLYPHS: [[u8; ROWS]; 95] = [
    [0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00], [0x04, 0x04, 0x04, 0x04, 0x04, 0x00, 0x04], // space  !
    [0x0a, 0x0a, 0x0a, 0x00, 0x00, 0x00, 0x00], [0x0a, 0x0a, 0x1f, 0x0a, 0x1f, 0x0a, 0x0a], // "  #
    [0x04, 0x0f, 0x14, 0x0e, 0x05, 0x1e, 0x04], [0x18, 0x19, 0x02, 0x04, 0x08, 0x13, 0x03], // $  %
    [0x0c, 0x12, 0x14, 0x08, 0x15, 0x12, 0x0d], [0x04, 0x04, 0x08, 0x00, 0x00, 0x00, 0x00], // &  '
    [0x02, 0x04, 0x08, 0x08, 0x08, 0x04, 0x02], [0x08, 0x04, 0x02, 0x02, 0x02, 0x04, 0x08], // (  )
    [0x00, 0x04, 0x15, 0x0e, 0x15, 0x04, 0x00], [0x00, 0x04, 0x04, 0x1f, 0x04, 0x04, 0x00], // *  +
    [0x00, 0x00, 0x00, 0x0c, 0x0c, 0x04, 0x08], [0x00, 0x00, 0x00, 0x0e, 0x00, 0x00, 0x00], // ,  -
    [0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x0c], [0x00, 0x01, 0x02, 0x04, 0x08, 0x10, 0x00], // .  /
    [0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e], [0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e], // 0  1
    [0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f], [0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e], // 2  3
    [0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02], [0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e], // 4  5
    [0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e], [0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08], // 6  7
    [0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e], [0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c], // 8  9
    [0x00, 0x0c, 0x0c, 0x00, 0x0c, 0x0c, 0x00], [0x0c, 0x0c, 0x00, 0x0c, 0x0c, 0x04, 0x08], // :  ;
    [0x02, 0x04, 0x08, 0x10, 0x08, 0x04, 0x02], [0x00, 0x00, 0x1f, 0x00, 0x1f, 0x00, 0x00], // <  =
    [0x08, 0x04, 0x02, 0x01, 0x02, 0x04, 0x08], [0x0e, 0x11, 0x01, 0x02, 0x04, 0x00, 0x04], // >  ?
    [0x0e, 0x11, 0x17, 0x15, 0x17, 0x10, 0x0e], [0x0e, 0x11, 0x11, 0x1f, 0x11, 0x11, 0x11], // @  A
    [0x1e, 0x11, 0x11, 0x1e, 0x11, 0x11, 0x1e], [0x0e, 0x11, 0x10, 0x10, 0x10, 0x11, 0x0e], // B  C
    [0x1c, 0x12, 0x11, 0x11, 0x11, 0x12, 0x1c], [0x1f, 0x10, 0x10, 0x1e, 0x10, 0x10, 0x1f], // D  E
    [0x1f, 0x10, 0x10, 0x1e, 0x10, 0x10, 0x10], [0x0e, 0x11, 0x10, 0x17, 0x11, 0x11, 0x0f], // F  G
    [0x11, 0x11, 0x11, 0x1f, 0x11, 0x11, 0x11], [0x0e, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0e], // H  I
    [0x07, 0x02, 0x02, 0x02, 0x02, 0x12, 0x0c], [0x11, 0x12, 0x14, 0x18, 0x14, 0x12, 0x11], // J  K
    [0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x1f], [0x11, 0x1b, 0x15, 0x15, 0x11, 0x11, 0x11], // L  M
    [0x11, 0x11, 0x19, 0x15, 0x13, 0x11, 0x11], [0x0e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e], // N  O
    [0x1e, 0x11, 0x11, 0x1e, 0x10, 0x10, 0x10], [0x0e, 0x11, 0x11, 0x11, 0x15, 0x12, 0x0d], // P  Q
    [0x1e, 0x11, 0x11, 0x1e, 0x14, 0x12, 0x11], [0x0f, 0x10, 0x10, 0x0e, 0x01, 0x01, 0x1e], // R  S
    [0x1f, 0x04, 0x04, 0x04, 0x04, 0x04, 0x04], [0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e], // T  U
    [0x11, 0x11, 0x11, 0x11, 0x11, 0x0a, 0x04], [0x11, 0x11, 0x11, 0x15, 0x15, 0x15, 0x0a], // V  W
    [0x11, 0x11, 0x0a, 0x04, 0x0a, 0x11, 0x11], [0x11, 0x11, 0x11, 0x0a, 0x04, 0x04, 0x04], // X  Y
    [0x1f, 0x01, 0x02, 0x04, 0x08, 0x10, 0x1f], [0x0e, 0x08, 0x08, 0x08, 0x08, 0x08, 0x0e], // Z  [
    [0x00, 0x10, 0x08, 0x04, 0x02, 0x01, 0x00], [0x0e, 0x02, 0x02, 0x02, 0x02, 0x02, 0x0e], // \  ]
    [0x04, 0x0a, 0x11, 0x00, 0x00, 0x00, 0x00], [0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1f], // ^  _
    [0x08, 0x04, 0x02, 0x00, 0x00, 0x00, 0x00], [0x00, 0x00, 0x0e, 0x01, 0x0f, 0x11, 0x0f], // `  a
    [0x10, 0x10, 0x16, 0x19, 0x11, 0x11, 0x1e], [0x00, 0x00, 0x0e, 0x10, 0x10, 0x11, 0x0e], // b  c
    [0x01, 0x01, 0x0d, 0x13, 0x11, 0x11, 0x0f], [0x00, 0x00, 0x0e, 0x11, 0x1f, 0x10, 0x0e], // d  e
    [0x06, 0x09, 0x08, 0x1c, 0x08, 0x08, 0x08], [0x0f, 0x11, 0x11, 0x11, 0x0f, 0x01, 0x0e], // f  g
    [0x10, 0x10, 0x16, 0x19, 0x11, 0x11, 0x11], [0x04, 0x00, 0x0c, 0x04, 0x04, 0x04, 0x0e], // h  i
    [0x02, 0x00, 0x06, 0x02, 0x02, 0x12, 0x0c], [0x10, 0x10, 0x12, 0x14, 0x18, 0x14, 0x12], // j  k
    [0x0c, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0e], [0x00, 0x00, 0x1a, 0x15, 0x15, 0x11, 0x11], // l  m
    [0x00, 0x00, 0x16, 0x19, 0x11, 0x11, 0x11], [0x00, 0x00, 0x0e, 0x11, 0x11, 0x11, 0x0e], // n  o
    [0x1e, 0x11, 0x11, 0x11, 0x1e, 0x10, 0x10], [0x0d, 0x13, 0x11, 0x11, 0x0f, 0x01, 0x01], // p  q
    [0x00, 0x00, 0x16, 0x19, 0x10, 0x10, 0x10], [0x00, 0x00, 0x0e, 0x10, 0x0e, 0x01, 0x1e], // r  s
    [0x08, 0x08, 0x1c, 0x08, 0x08, 0x09, 0x06], [0x00, 0x00, 0x11, 0x11, 0x11, 0x13, 0x0d], // t  u
    [0x00, 0x00, 0x11, 0x11, 0x11, 0x0a, 0x04], [0x00, 0x00, 0x11, 0x11, 0x15, 0x15, 0x0a], // v  w
    [0x00, 0x00, 0x11, 0x0a, 0x04, 0x0a, 0x11], [0x11, 0x11, 0x11, 0x11, 0x0f, 0x01, 0x0e], // x  y
    [0x00, 0x00, 0x1f, 0x02, 0x04, 0x08, 0x1f], [0x02, 0x04, 0x04, 0x08, 0x04, 0x04, 0x02], // z  {
    [0x04, 0x04, 0x04, 0x04, 0x04, 0x04, 0x04], [0x08, 0x04, 0x04, 0x02, 0x04, 0x04, 0x08], // |  }
    [0x00, 0x00, 0x08, 0x15, 0x02, 0x00, 0x00], // ~
];

/// Names are cut to this many letters.
const MATRIX_LETTERS: usize = 12;
/// Distance between names and cells in pixels.
const MATRIX_GAP: usize = 6;
/// Size of a cell in pixels if names are shown.
const NAMED_CELL: usize = 20;
/// Names are only shown up to this number of rows.
const MAX_NAMED_ROWS: usize = 50;
/// Approximate size of the whole matrix in pixels if no names are shown.
const MATRIX_SIDE: usize = 600;

const MATRIX_PAPER: Rgb<u8> = Rgb([255, 255, 255]);
const LINE: Rgb<u8> = Rgb([225, 225, 225]);

/// Draws a square matrix of fractions from 0 to 1 and returns the width, the height and the content of a PNG file.
/// `names` are the names of the rows and of the columns.
///
/// # Errors
///
/// Returns an error if the matrix is too large for a picture.
pub fn matrix(names: &[String], rows: &[Vec<f64>]) -> Result<(u32, u32, Vec<u8>), Error> {
    let named = rows.len() <= MAX_NAMED_ROWS;
    let cell = if named { NAMED_CELL } else { (MATRIX_SIDE / rows.len()).max(1) };
    let margin = if named { MATRIX_LETTERS * ADVANCE * FONT_SCALE + MATRIX_GAP } else { 0 };
    let side = margin + rows.len().max(1) * cell;
    let mut picture = RgbImage::from_pixel(side as u32, side as u32, MATRIX_PAPER);
    for (y, row) in rows.iter().enumerate() {
        for (x, share) in row.iter().enumerate().take(rows.len()) {
            fill(&mut picture, (margin + x * cell, margin + y * cell), cell, shade(*share), named);
        }
    }
    for (k, name) in names.iter().enumerate().filter(|_| named) {
        let at = margin + k * cell + (cell - HEIGHT * FONT_SCALE) / 2;
        for (i, letter) in name.chars().take(MATRIX_LETTERS).enumerate() {
            write_letter(&mut picture, letter, |x, y| (i * ADVANCE * FONT_SCALE + x, at + y));
            // Column names are written from bottom to top.
            write_letter(&mut picture, letter, |x, y| (at + y, margin - MATRIX_GAP - i * ADVANCE * FONT_SCALE - x));
        }
    }
    let mut file = Vec::new();
    let written = picture.write_with_encoder(PngEncoder::new(&mut file));
    written.map_err(|e| Error::Usage(format!("a matrix of {} rows as a picture: {e}", rows.len())))?;
    Ok((side as u32, side as u32, file))
}

/// Returns a colour from white for 0 to dark blue for 1. The square root makes small fractions visible.
fn shade(share: f64) -> Rgb<u8> {
    let part = share.clamp(0.0, 1.0).sqrt();
    Rgb([8.0, 48.0, 107.0].map(|dark| (255.0 + (dark - 255.0) * part).round() as u8))
}

fn fill(picture: &mut RgbImage, (left, top): (usize, usize), cell: usize, color: Rgb<u8>, lined: bool) {
    for y in 0..cell {
        for x in 0..cell {
            let edge = lined && (x + 1 == cell || y + 1 == cell);
            picture.put_pixel((left + x) as u32, (top + y) as u32, if edge { LINE } else { color });
        }
    }
}

fn write_letter(picture: &mut RgbImage, letter: char, place: impl Fn(usize, usize) -> (usize, usize)) {
    for y in 0..HEIGHT * FONT_SCALE {
        for x in 0..WIDTH * FONT_SCALE {
            if is_inked(letter, y / FONT_SCALE, x / FONT_SCALE) {
                let (x, y) = place(x, y);
                picture.put_pixel(x as u32, y as u32, BLACK);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(c: char) -> String {
        let row = |r| (0..WIDTH).map(|k| if is_inked(c, r, k) { '#' } else { '.' }).collect::<String>();
        (0..HEIGHT).map(row).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn letters_have_the_right_pixels() {
        assert_eq!(drawn('T'), "##### ..#.. ..#.. ..#.. ..#.. ..#.. ..#.. ..... .....");
        assert_eq!(drawn('7'), "##### ....# ...#. ..#.. .#... .#... .#... ..... .....");
        assert_eq!(drawn(' '), "..... ..... ..... ..... ..... ..... ..... ..... .....");
        assert_eq!(drawn('p'), "..... ..... ####. #...# #...# #...# ####. #.... #....");
        assert_eq!(drawn('~'), "..... ..... .#... #.#.# ...#. ..... ..... ..... .....");
        assert_eq!(drawn('é'), drawn('\n'));
    }

    #[test]
    fn no_two_letters_look_alike() {
        let mut all: Vec<String> = (' '..='~').map(drawn).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 95);
    }

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
    fn cells_are_laid_out_in_rows_with_captions() {
        let ink = Rgb([200, 0, 0]);
        let cell = |w, h| Cell { picture: RgbImage::from_pixel(w, h, ink), words: "I".into() };
        let sheet = lay_out(&[cell(132, 20), cell(100, 10), cell(4, 4)], 2);
        // Two cells of width 132. Two rows of height 20 with captions and margins.
        assert_eq!(sheet.dimensions(), (8 + 2 * 140, 8 + 2 * (20 + 8 + 36 + 8)));
        assert_eq!(*sheet.get_pixel(8, 8), ink);
        assert_eq!(*sheet.get_pixel(8 + 131, 8 + 19), ink);
        // The second picture is centred and aligned at the bottom.
        assert_eq!(*sheet.get_pixel(148 + 16, 8 + 19), ink);
        assert_eq!(*sheet.get_pixel(148 + 15, 8 + 19), SHEET_PAPER);
        assert_eq!(*sheet.get_pixel(148 + 16, 8 + 9), SHEET_PAPER);
        // The stem of the letter I is in the third of five columns.
        let left = 8 + (132 - 10) / 2;
        assert_eq!(*sheet.get_pixel(left + 4, 8 + 20 + 8 + 6), BLACK);
        assert_eq!(*sheet.get_pixel(left, 8 + 20 + 8 + 6), SHEET_PAPER);
    }

    #[test]
    fn cells_are_dark_where_much_is() {
        let rows = vec![vec![1.0, 0.0], vec![0.25, 0.75]];
        let (width, height, png) = matrix(&["a long name of a class".into(), "\u{5d0}".into()], &rows).unwrap();
        let picture = image::load_from_memory(&png).unwrap().into_rgb8();
        assert_eq!((width, height), picture.dimensions());
        let margin = width - 40;
        let at = |x: u32, y: u32| *picture.get_pixel(margin + 20 * x + 5, margin + 20 * y + 5);
        assert_eq!([at(0, 0), at(1, 0), at(0, 1)], [Rgb([8, 48, 107]), MATRIX_PAPER, shade(0.25)]);
        let ink = |x: std::ops::Range<u32>, y: std::ops::Range<u32>| {
            x.flat_map(|x| y.clone().map(move |y| (x, y))).filter(|(x, y)| *picture.get_pixel(*x, *y) == BLACK).count()
        };
        let (beside, above) = (ink(0..margin, margin..height), ink(margin..width, 0..margin));
        assert!(beside > 100 && beside == above, "{beside} {above}");
        for classes in [0, 51, 1000] {
            let rows = vec![vec![0.0; classes]; classes];
            assert!(matrix(&vec![String::new(); classes], &rows).unwrap().0 as usize >= classes);
        }
    }
}
