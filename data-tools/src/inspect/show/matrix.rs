//! A matrix as a picture: dark where much is, with names beside its rows and above its columns.

use super::sheet;
use crate::error::Error;
use image::{ImageFormat, Rgb, RgbImage};
use std::io::Cursor;

/// Pixels of the picture to one of a letter.
const INK: usize = 2;
/// Letters of a name.
const LETTERS: usize = 12;
/// Of names and cells.
const GAP: usize = 6;
/// Pixels of a cell whose row has a name.
const NAMED: usize = 20;
/// Rows and columns up to which names have room.
const MOST_NAMED: usize = 50;
/// Pixels of all cells, where there are no names, about.
const WISHED: usize = 600;

const PAPER: Rgb<u8> = Rgb([255, 255, 255]);
const BLACK: Rgb<u8> = Rgb([30, 30, 30]);
const LINE: Rgb<u8> = Rgb([225, 225, 225]);

/// A PNG file of a square matrix of shares from 0 to 1 with the names of its rows, which are those of its columns.
///
/// # Errors
/// For a matrix too large for a picture.
pub fn matrix(names: &[String], rows: &[Vec<f64>]) -> Result<(u32, u32, Vec<u8>), Error> {
    let named = rows.len() <= MOST_NAMED;
    let cell = if named { NAMED } else { (WISHED / rows.len()).max(1) };
    let margin = if named { LETTERS * sheet::ADVANCE * INK + GAP } else { 0 };
    let side = margin + rows.len().max(1) * cell;
    let mut picture = RgbImage::from_pixel(side as u32, side as u32, PAPER);
    for (y, row) in rows.iter().enumerate() {
        for (x, share) in row.iter().enumerate().take(rows.len()) {
            fill(&mut picture, (margin + x * cell, margin + y * cell), cell, shade(*share), named);
        }
    }
    for (k, name) in names.iter().enumerate().filter(|_| named) {
        let at = margin + k * cell + (cell - sheet::HEIGHT * INK) / 2;
        for (i, letter) in name.chars().take(LETTERS).enumerate() {
            write(&mut picture, letter, |x, y| (i * sheet::ADVANCE * INK + x, at + y));
            // from bottom to top
            write(&mut picture, letter, |x, y| (at + y, margin - GAP - i * sheet::ADVANCE * INK - x));
        }
    }
    let mut file = Cursor::new(Vec::new());
    let written = picture.write_to(&mut file, ImageFormat::Png);
    written.map_err(|e| Error::Usage(format!("a matrix of {} rows as a picture: {e}", rows.len())))?;
    Ok((side as u32, side as u32, file.into_inner()))
}

/// White for 0, dark blue for 1; a square root makes small shares visible.
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

fn write(picture: &mut RgbImage, letter: char, place: impl Fn(usize, usize) -> (usize, usize)) {
    for y in 0..sheet::HEIGHT * INK {
        for x in 0..sheet::WIDTH * INK {
            if sheet::is_inked(letter, y / INK, x / INK) {
                let (x, y) = place(x, y);
                picture.put_pixel(x as u32, y as u32, BLACK);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_dark_where_much_is() {
        let rows = vec![vec![1.0, 0.0], vec![0.25, 0.75]];
        let (width, height, png) = matrix(&["a long name of a class".into(), "\u{5d0}".into()], &rows).unwrap();
        let picture = image::load_from_memory(&png).unwrap().into_rgb8();
        assert_eq!((width, height), picture.dimensions());
        let margin = width - 40;
        let at = |x: u32, y: u32| *picture.get_pixel(margin + 20 * x + 5, margin + 20 * y + 5);
        assert_eq!([at(0, 0), at(1, 0), at(0, 1)], [Rgb([8, 48, 107]), PAPER, shade(0.25)]);
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
