//! Tests how raw images are read: TIFF strips, tiles and pages, hostile files, and options that do not apply.

use data_tools::convert;
use data_tools::raw::{self, Page, RawOptions};
use loaders::Limits;
use support::mentions;

use crate::bands::{bytes16, npy, one, options, refused, with};
use crate::common::pictures::*;
use crate::common::tiff::{Page as TiffPage, Tags, long, one_strip, short, strip, tags, text, tiff};
use crate::common::*;

#[test]
fn strips_tiles_planes_and_pages() {
    // 3 x 4 pixels with two bands: band 0 has 0 to 11, band 1 has 100 to 111. Tiles have 2 x 2 pixels.
    let value = |y: u16, x: u16, band: u16| if y < 3 && x < 4 { y * 4 + x + 100 * band } else { 7 };
    let expected = bytes16(&(0..24).map(|i| value(i / 8, i / 2 % 4, i % 2)).collect::<Vec<_>>());
    let plane = |band: u16, top: u16, left: u16| {
        zlib(&bytes16(&(0..4).map(|i| value(top + i / 2, left + i % 2, band)).collect::<Vec<_>>()))
    };
    let tiles: Vec<Vec<u8>> = (0..8).map(|i: u16| plane(i / 4, i / 2 % 2 * 2, i % 2 * 2)).collect();
    let tiled = tags(3, 4, &[16; 2], [(259, short(8)), (284, short(2)), (322, short(2)), (323, short(2))]);
    let file = tiff(&[TiffPage { tags: &tiled, chunks: &tiles, is_tiled: true }], None);
    assert_eq!(one("t.tif", &file, &RawOptions::default()).unwrap().bytes, expected);
    // An empty tile in a sparse GeoTIFF has no bytes.
    let mut sparse = tiles.clone();
    sparse[7].clear();
    let file = tiff(&[TiffPage { tags: &tiled, chunks: &sparse, is_tiled: true }], None);
    let image = one("s.tif", &file, &RawOptions::default()).unwrap();
    assert_eq!((image.bytes[..40] == expected[..40], &image.bytes[42..44]), (true, &[0, 0][..]));
    // If there is a nodata value, the tile has no data. The value may come from the file or from the user.
    let mut with_tag = tiled.clone();
    with_tag.insert(42113, text("9"));
    let tagged = tiff(&[TiffPage { tags: &with_tag, chunks: &sparse, is_tiled: true }], None);
    for (file, given, expected) in [(&tagged, None, 9), (&file, Some(8.0), 8), (&tagged, Some(8.0), 8)] {
        let image = one("n.tif", file, &RawOptions { nodata: given, ..RawOptions::default() }).unwrap();
        assert_eq!((image.nodata, &image.bytes[42..44]), (Some(f64::from(expected)), &[expected, 0][..]));
    }

    // Predictor 2 in two strips with two rows each.
    let predicted = |rows: std::ops::Range<u16>| {
        let value =
            |y: u16, x: u16, band: u16| value(y, x, band).wrapping_sub(if x > 0 { value(y, x - 1, band) } else { 0 });
        zlib(&bytes16(&rows.flat_map(|y| (0..8).map(move |i| value(y, i / 2, i % 2))).collect::<Vec<_>>()))
    };
    let striped = tags(3, 4, &[16; 2], [(259, short(8)), (278, short(2)), (317, short(2))]);
    let chunks = [predicted(0..2), predicted(2..3)];
    let page = || TiffPage { tags: &striped, chunks: &chunks, is_tiled: false };
    assert_eq!(one("p.tif", &tiff(&[page()], None), &RawOptions::default()).unwrap().bytes, expected);

    let pages = tiff(&[page(), TiffPage { tags: &tiled, chunks: &sparse, is_tiled: true }], None);
    let of = |page| one("pages.tif", &pages, &RawOptions { page, ..RawOptions::default() });
    assert_eq!(of(Page::Number(2)).unwrap().bytes, image.bytes);
    let all = of(Page::All).unwrap();
    assert_eq!((all.channels, &all.bytes[..8]), (4, &[0, 0, 100, 0, 0, 0, 100, 0][..]));
    let error = of(Page::Number(3)).unwrap_err();
    mentions(error, &["page 3 ", "TIFF has 2"]);
    let last = RawOptions { bands: vec![2, 1, 2], ..RawOptions::default() };
    assert_eq!(one("p.tif", &tiff(&[page()], None), &last).unwrap().bytes[..6], [100, 0, 0, 0, 100, 0]);
    let error =
        one("p.tif", &tiff(&[page()], None), &RawOptions { bands: vec![3], ..RawOptions::default() }).unwrap_err();
    mentions(error, &["band 3 ", "image has 2 bands"]);
}

/// The nodata value may be on any page. Two values are an error, unless the user gives one.
#[test]
fn pages_have_one_nodata_value() {
    let chunks = [bytes16(&[5, 6])];
    let read = |values: [Option<&str>; 3], nodata: Option<f64>| {
        let all = values.map(|value| tags(1, 2, &[16], value.map(|value| (42113, text(value)))));
        let pages = all.each_ref().map(|tags| TiffPage { tags, chunks: &chunks, is_tiled: false });
        one("p.tif", &tiff(&pages, None), &RawOptions { page: Page::All, nodata, ..RawOptions::default() })
    };
    for (values, given, expected) in [
        ([None; 3], None, None),
        ([None, Some("6"), None], None, Some(6.0)),
        ([Some("6"), None, Some("6")], None, Some(6.0)),
        ([None, Some("5"), Some("6")], Some(7.0), Some(7.0)),
    ] {
        assert_eq!(read(values, given).unwrap().nodata, expected, "{values:?}");
    }
    mentions(read([None, Some("5"), Some("6")], None).unwrap_err(), &["page 3 ", "value 6", "has 5", "--nodata"]);
    // a missing strip of a page without the tag has no data either
    let all = [Some("6"), None].map(|value| tags(1, 2, &[16], value.map(|value| (42113, text(value)))));
    let missing = [Vec::new()];
    let pages = [(&all[0], &chunks), (&all[1], &missing)];
    let pages = pages.map(|(tags, chunks)| TiffPage { tags, chunks, is_tiled: false });
    let image = one("p.tif", &tiff(&pages, None), &RawOptions { page: Page::All, ..RawOptions::default() }).unwrap();
    assert_eq!(image.bytes, bytes16(&[5, 6, 6, 6]));
}

#[test]
fn hostile_files_are_refused() {
    let rows = || (278, long(4_000_000_000));
    // The file is small but claims 10^15 pixels.
    let bomb = tags(300_000_000, 4_000_000, &[16], [rows(), (259, short(8))]);
    let error = one("bomb.tif", &one_strip(&bomb, &[0; 10]), &RawOptions::default()).unwrap_err();
    assert!(error.contains("limit"), "{error}");
    // The image has one pixel, but its tile has 10^15 pixels.
    let tile = tags(1, 1, &[16], [(259, short(8)), (322, long(40_000_000)), (323, long(40_000_000))]);
    let file = tiff(&[TiffPage { tags: &tile, chunks: &[vec![0; 10]], is_tiled: true }], None);
    let error = one("tile.tif", &file, &RawOptions::default()).unwrap_err();
    assert!(error.contains("limit"), "{error}");
    let small = tags(2, 3, &[16], [rows()]);
    // The page list is circular.
    let circle = tiff(&[TiffPage { tags: &small, chunks: &[vec![0; 12]], is_tiled: false }], Some(0));
    for page in [Page::All, Page::Number(9)] {
        let error = one("c.tif", &circle, &RawOptions { page, ..RawOptions::default() }).unwrap_err();
        assert!(error.contains("TIFF"), "{error}");
    }
    let whole = one_strip(&small, &[0; 12]);
    assert!(one("w.tif", &whole, &RawOptions::default()).is_ok());
    for cut in 0..whole.len() {
        assert!(one("cut.tif", &whole[..cut], &RawOptions::default()).is_err(), "{cut}");
    }
    // Whatever byte is wrong, the result is an image or an error.
    for at in 0..whole.len() {
        for value in [0, 1, 127, 255] {
            let mut wrong = whole.clone();
            wrong[at] = value;
            if let Err(error) = one("wrong.tif", &wrong, &RawOptions::default()) {
                assert!(!error.contains("decoder failed"), "byte {at} = {value}: {error}");
            }
        }
    }
    for (bits, tag, value, what) in [
        (64, 339, 3, "floats of 64 bits"),
        (32, 339, 1, "unsigned integers of 32 "),
        (16, 262, 3, "palette"),
        (16, 259, 34925, "LZMA compression"),
    ] {
        let file = one_strip(&tags(1, 1, &[bits], [(tag, short(value))]), &[0; 8]);
        let error = refused(&[("x.tif", file)], &options());
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn options_that_do_not_apply_are_refused() {
    let layout = RawOptions { layout: Some(raw::Layout::Planes), ..RawOptions::default() };
    let images = RawOptions { images: Some("x".into()), ..RawOptions::default() };
    let page = RawOptions { page: Page::Number(2), ..RawOptions::default() };
    let wide = strip(1, 2, 1, 16, 1, &[1, 0, 2, 0], &[]);
    let rgb = strip(1, 1, 3, 8, 1, &[1, 2, 3], &[]);
    for (name, file) in [("0.tif", &wide), ("1.tif", &rgb), ("2.png", &png(4, 5, 1))] {
        mentions(refused(&[(name, file.clone())], &with(layout.clone())), &[name, "--layout", ".npy"]);
        mentions(refused(&[(name, file.clone())], &with(images.clone())), &[name, "--images", "HDF5"]);
    }
    let array = npy("<u2", "1, 2", &[1, 0, 2, 0]);
    for (name, file) in [("0.npy", array.clone()), ("1.png", png(4, 5, 1))] {
        mentions(refused(&[(name, file)], &with(page.clone())), &[name, "--page", "TIFF"]);
    }
    mentions(refused(&[("0.npy", array)], &with(images)), &["--images", "HDF5"]);
    let mut hdf5 = b"\x89HDF\r\n\x1a\n".to_vec();
    hdf5.resize(1000, 0);
    mentions(refused(&[("0.jpg", hdf5)], &options()), &["HDF5"]);
}

/// Returns a 16-bit grey TIFF. Each page is a single pixel.
fn pages(values: &[Vec<u8>], next: Option<usize>, kinds: &[u32]) -> Vec<u8> {
    let tags: Vec<Tags> = kinds.iter().map(|&kind| tags(1, 1, &[16], [(254, long(kind))])).collect();
    let chunks: Vec<[Vec<u8>; 1]> = values.iter().map(|value| [value.clone()]).collect();
    let pages = tags.iter().zip(&chunks).map(|(tags, chunks)| TiffPage { tags, chunks, is_tiled: false });
    tiff(&pages.collect::<Vec<_>>(), next)
}

#[test]
fn pages_are_bounded_and_noted() {
    let value = |value: u16| value.to_le_bytes().to_vec();
    // The second page is a smaller copy.
    let file = pages(&[value(1), value(2), value(3)], None, &[0, 1, 0]);
    let all = RawOptions { page: Page::All, ..RawOptions::default() };
    assert_eq!(one("x.tif", &file, &all).unwrap().bytes, bytes16(&[1, 3]));
    let temp = Temp::new();
    write(&temp.path("src/a/0.tif"), &file);
    write(&temp.path("src/a/1.tif"), &pages(&[value(1), value(2)], None, &[0, 1]));
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap();
    mentions(made.notes.concat(), &["1 TIFF file ", "--page"]);

    let many = |count: u16| pages(&(0..count).map(value).collect::<Vec<_>>(), None, &vec![0; count.into()]);
    assert_eq!(one("m.tif", &many(1024), &all).unwrap().channels, 1024);
    mentions(one("m.tif", &many(1025), &all).unwrap_err(), &["1025 bands"]);
    let last = RawOptions { page: Page::Number(1025), ..RawOptions::default() };
    assert_eq!(one("m.tif", &many(1025), &last).unwrap().bytes, bytes16(&[1024]));
    let seconds = |limit: f64, options: &RawOptions| {
        write(&temp.path("m.tif"), &many(1025));
        raw::read(&temp.path("m.tif"), options, &Limits { seconds: limit, ..Limits::DEFAULT })
    };
    // 1,025 directories with ten entries each.
    assert!(seconds(0.01, &last).is_ok());
    mentions(seconds(1e-4, &last).unwrap_err(), &["m.tif", "limit"]);
}

#[test]
fn strips_that_share_bytes_count_each_time() {
    const STRIPS: u32 = 3000;
    const LENGTH: u32 = 200_000;
    let tags = tags(STRIPS, 1, &[16], [(278, long(1))]);
    let chunks: Vec<Vec<u8>> = (0..STRIPS).map(|i| vec![7; if i == 0 { LENGTH as usize } else { 2 }]).collect();
    let mut file = tiff(&[TiffPage { tags: &tags, chunks: &chunks, is_tiled: false }], None);
    assert_eq!(one("x.tif", &file, &RawOptions::default()).unwrap().bytes, vec![7; 2 * STRIPS as usize]);
    let list = |values: &dyn Fn(u32) -> u32| (0..STRIPS).flat_map(|i| values(i).to_le_bytes()).collect::<Vec<u8>>();
    let start = |i: u32| if i == 0 { 8 } else { 8 + LENGTH + 2 * (i - 1) };
    let length = |i: u32| if i == 0 { LENGTH } else { 2 };
    for (before, after) in [(list(&start), list(&|_| 8)), (list(&length), list(&|_| LENGTH))] {
        let at = file.windows(before.len()).position(|part| part == before).unwrap();
        file[at..at + after.len()].copy_from_slice(&after);
    }
    // The 3,000 strips share the same 200,000 bytes, so 600 million bytes would be read.
    mentions(one("x.tif", &file, &RawOptions::default()).unwrap_err(), &["limit"]);
}

/// Training reads grey images of bytes among RGB images as RGB, so they are measured as RGB.
#[test]
fn grey_arrays_of_bytes_among_rgb_arrays_count_as_rgb() {
    let temp = Temp::new();
    write(&temp.path("src/a/0.npy"), &npy("|u1", "1, 2", &[0, 255]));
    write(&temp.path("src/b/1.npy"), &npy("|u1", "1, 2, 3", &[255, 0, 0, 0, 0, 0]));
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap();
    // The values of red are 0, 255, 255 and 0. Green and blue are 255 only in the grey image.
    assert_eq!(made.manifest.mean, [0.5, 0.25, 0.25]);
}
