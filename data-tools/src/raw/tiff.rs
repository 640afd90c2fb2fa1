//! TIFF files with any number of bands, including GeoTIFF and BigTIFF. The `tiff` crate reads the directories and
//! decompresses the strips and tiles. This file arranges them, because the crate interprets colours: it drops bands
//! beyond RGB, inverts grey, and misplaces border tiles in planar images. This file keeps all samples unchanged.

mod pages;

use std::io::Cursor;

use base::text::{plural, printable};
use half::f16;
use loaders::{Cost, Dtype, ImageSpec, Limits};
use tiff::TiffError;
use tiff::decoder::{Decoder, DecodingResult};
use tiff::tags::{PhotometricInterpretation as Colours, Tag};

use super::RawImage;
pub(crate) use pages::check_first_directory;
pub(super) use pages::{decode, has_more_pages, pages};

/// Lower bound for decompression speed, in bytes per second.
const BYTES_PER_SECOND: f64 = 5e7;

/// Names of unsupported compressions.
const UNSUPPORTED: &[(u16, &str)] = &[
    (2, "CCITT RLE"),
    (3, "CCITT fax 3"),
    (4, "CCITT fax 4"),
    (6, "old JPEG"),
    (7, "JPEG"),
    (34712, "JPEG 2000"),
    (34887, "LERC"),
    (34892, "lossy JPEG"),
    (34925, "LZMA"),
    (50001, "WebP"),
    (50002, "JPEG XL"),
];
const PLAIN: u16 = 1;
/// LZW, deflate under both its codes, PackBits and zstd.
const SUPPORTED: [u16; 5] = [5, 8, 32946, 32773, ZSTD];
const ZSTD: u16 = 50000;

/// Sample type in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Samples {
    /// Unsigned integers with 1 to 16 bits.
    Unsigned(u32),
    I8,
    I16,
    F16,
    F32,
}

impl Samples {
    fn dtype(self) -> Dtype {
        match self {
            Self::Unsigned(..=8) => Dtype::U8,
            Self::Unsigned(_) => Dtype::U16,
            Self::I8 | Self::I16 => Dtype::I16,
            Self::F16 | Self::F32 => Dtype::F32,
        }
    }

    fn bits(self) -> u32 {
        match self {
            Self::Unsigned(bits) => bits,
            Self::I8 => 8,
            Self::I16 | Self::F16 => 16,
            Self::F32 => 32,
        }
    }

    /// Returns true if values are packed and not aligned to bytes.
    fn is_packed(self) -> bool {
        !matches!(self.bits(), 8 | 16 | 32)
    }
}

/// One page, as its directory describes it.
#[derive(Debug)]
struct Layout {
    height: usize,
    width: usize,
    bands: usize,
    samples: Samples,
    sample_format: u16,
    is_planar: bool,
    compression: u16,
    predictor: u16,
    /// True if the first pixel is in the lowest bit of a byte.
    reversed_bits: bool,
    is_big_endian: bool,
    /// Height and width of a strip or tile. The last strip may have fewer rows.
    chunk: [usize; 2],
    is_tiled: bool,
    /// Offset and size of each strip or tile.
    places: Vec<(u64, u64)>,
    nodata: Option<f64>,
}

/// Returns true if the `image` crate can decode the first page: 8 bits, one or three bands, and perhaps opacity. Also
/// returns true if the file cannot be opened, so that the error of the `image` crate is reported.
pub(super) fn is_ordinary(file: &[u8]) -> bool {
    let Some(mut decoder) = opened(file) else { return true };
    let mut numbers = |tag| decoder.find_tag_unsigned_vec::<u16>(tag).ok().flatten();
    let colours = numbers(Tag::PhotometricInterpretation).and_then(|list| Colours::from_u16(*list.first()?));
    let bands = numbers(Tag::SamplesPerPixel).and_then(|list| list.first().copied()).unwrap_or(1);
    let bits = numbers(Tag::BitsPerSample).unwrap_or_else(|| vec![1]);
    let formats = numbers(Tag::SampleFormat).unwrap_or_else(|| vec![1]);
    let extra = numbers(Tag::ExtraSamples).unwrap_or_default();
    let opacity = extra.iter().filter(|kind| [1, 2].contains(*kind)).count() as u16;
    let own = match colours {
        Some(Colours::WhiteIsZero | Colours::BlackIsZero) => 1,
        // The `image` crate converts the four inks of CMYK to RGB.
        Some(Colours::CMYK) => 4,
        Some(Colours::RGB) | None => 3,
        // The `image` crate converts the others to RGB, or a later check rejects them with a message that names the
        // format.
        Some(_) => return true,
    };
    let is_byte = bits.iter().all(|&bits| bits == 8) || bits == [1] && bands == 1;
    is_byte && formats.iter().all(|&format| format == 1 || format == 4) && bands <= own + opacity
}

/// Returns true if the first page names a nodata value.
pub(super) fn has_nodata(file: &[u8]) -> bool {
    opened(file).is_some_and(|mut tiff| tiff.find_tag(Tag::GdalNodata).is_ok_and(|tag| tag.is_some()))
}

/// Opens a file at its first page. Returns `None` if that fails.
fn opened(file: &[u8]) -> Option<Decoder<Cursor<&[u8]>>> {
    check_first_directory(file).ok()?;
    Decoder::new(Cursor::new(file)).ok()
}

impl Layout {
    /// Reads the current page's directory. A nodata value from the user replaces the file's value.
    fn read(decoder: &mut Decoder<Cursor<&[u8]>>, file: &[u8], given_nodata: Option<f64>) -> Result<Self, String> {
        let (width, height) = decoder.dimensions().map_err(fault)?;
        let mut numbers = |tag| decoder.find_tag_unsigned_vec::<u64>(tag).map_err(fault);
        let mut one =
            |tag, usual: u64| Ok::<_, String>(numbers(tag)?.and_then(|n| n.first().copied()).unwrap_or(usual));
        let bands = one(Tag::SamplesPerPixel, 1)? as usize;
        let colours = one(Tag::PhotometricInterpretation, 1)?;
        let compression = one(Tag::Compression, 1)? as u16;
        let predictor = one(Tag::Predictor, 1)? as u16;
        let is_planar = one(Tag::PlanarConfiguration, 1)? == 2 && bands > 1;
        let reversed_bits = one(Tag::FillOrder, 1)? == 2;
        let (bits, sample_format) = (one(Tag::BitsPerSample, 1)?, one(Tag::SampleFormat, 1)? as u16);
        let rows = one(Tag::RowsPerStrip, u64::from(height))?.clamp(1, u64::from(height));
        let tile = [one(Tag::TileLength, 0)?, one(Tag::TileWidth, 0)?];
        let is_tiled = numbers(Tag::TileOffsets)?.is_some();
        let [offsets, sizes] = match is_tiled {
            true => [Tag::TileOffsets, Tag::TileByteCounts],
            false => [Tag::StripOffsets, Tag::StripByteCounts],
        };
        let (offsets, sizes) = (numbers(offsets)?.unwrap_or_default(), numbers(sizes)?.unwrap_or_default());
        let nodata = decoder.find_tag(Tag::GdalNodata).ok().flatten().and_then(|tag| tag.into_string().ok());
        let nodata = match (given_nodata, nodata) {
            (None, Some(text)) => parse_nodata(&text)?,
            (given, _) => given,
        };
        super::check_bands(bands)?;
        let refused = |what: String, cure: &str| Err(format!("a TIFF {what}, which cannot be read; save it {cure}"));
        match Colours::from_u16(colours as u16) {
            Some(Colours::RGBPalette) => return refused("with a palette".into(), "as RGB"),
            Some(Colours::YCbCr) => return refused("with YCbCr colours".into(), "as RGB"),
            Some(Colours::CIELab | Colours::IccLab | Colours::ItuLab) => {
                return refused("with CIELAB colours".into(), "as RGB");
            }
            _ => {}
        }
        if compression != PLAIN && !SUPPORTED.contains(&compression) {
            let name = UNSUPPORTED.iter().find(|(number, _)| *number == compression).map(|(_, name)| *name);
            let name = name.map_or_else(|| format!("compression {compression}"), |name| format!("{name} compression"));
            let bands = plural(bands as u64, "band");
            let cure = "with LZW, deflate, zstd or no compression";
            return refused(format!("with {bands} of {} and {name}", plural(bits, "bit")), cure);
        }
        let samples = match (sample_format, bits) {
            (1 | 4, 1..=16) => Samples::Unsigned(bits as u32),
            (2, 8) => Samples::I8,
            (2, 16) => Samples::I16,
            (3, 16) => Samples::F16,
            (3, 32) => Samples::F32,
            (format, bits) => {
                let kind =
                    ["", "unsigned integers", "integers", "floats"].get(usize::from(format)).unwrap_or(&"numbers");
                return Err(format!(
                    "a TIFF with {kind} of {bits} bits; expected uint8, uint16, int16 or float32 (other types do not convert exactly: \
                     save it as one of these)"
                ));
            }
        };
        if predictor > 3 || samples.is_packed() && predictor != 1 {
            return refused(format!("with predictor {predictor} and {bits} bits"), "without a predictor");
        }
        let layout = Layout {
            height: height as usize,
            width: width as usize,
            bands,
            samples,
            sample_format,
            is_planar,
            compression,
            predictor,
            reversed_bits,
            is_big_endian: file.starts_with(b"MM"),
            chunk: if is_tiled { tile.map(|side| side as usize) } else { [rows as usize, width as usize] },
            is_tiled,
            places: offsets.into_iter().zip(sizes).collect(),
            nodata,
        };
        // Decoding relies on this number. The `tiff` crate has also checked it for each page that it opened.
        let (found, expected) = (layout.places.len(), layout.chunks_per_plane() * if is_planar { bands } else { 1 });
        match found == expected {
            true => Ok(layout),
            false => Err(format!(
                "a TIFF with {found} strips or tiles, but its size needs {expected}; save it or fetch it again"
            )),
        }
    }

    fn across(&self) -> usize {
        self.width.div_ceil(self.chunk[1].max(1))
    }

    fn chunks_per_plane(&self) -> usize {
        self.across().saturating_mul(self.height.div_ceil(self.chunk[0].max(1)))
    }

    fn image(&self, bands: usize) -> RawImage {
        RawImage {
            dtype: self.samples.dtype(),
            height: self.height as u32,
            width: self.width as u32,
            channels: bands as u32,
            bytes: Vec::new(),
            nodata: self.nodata,
        }
    }

    /// Returns the number of bands per strip or tile.
    fn bands_in_chunk(&self) -> usize {
        if self.is_planar { 1 } else { self.bands }
    }

    /// Returns the number of values in a whole strip or tile.
    fn values_in_chunk(&self) -> usize {
        self.chunk.iter().fold(self.bands_in_chunk(), |product, &side| product.saturating_mul(side))
    }

    /// Returns the estimated time for decoding the page.
    fn seconds(&self, file: &[u8]) -> f64 {
        let values = (self.values_in_chunk() as u64).saturating_mul(self.places.len() as u64);
        // If strips or tiles overlap in the file, the shared bytes are decompressed more than once.
        let stored = self.places.iter().fold(0u64, |sum, (_, length)| sum.saturating_add(*length));
        let repeated = stored.saturating_sub(file.len() as u64);
        let bytes = values.saturating_mul(self.samples.dtype().bytes() as u64).saturating_add(repeated);
        bytes as f64 / BYTES_PER_SECOND
    }

    /// Decodes the page. `copies` is the memory that the caller keeps, measured in images. `seconds` is the estimated
    /// time for the file.
    fn decode(&self, file: &[u8], limits: &Limits, copies: usize, seconds: f64) -> Result<RawImage, String> {
        let mut image = self.image(self.bands);
        let in_chunk = self.bands_in_chunk();
        let spec = ImageSpec::new(image.height, image.width, image.channels);
        let size = image.dtype.bytes();
        let chunk = self.values_in_chunk();
        let values = (spec.values() as u64).saturating_mul(copies as u64);
        let memory = values.saturating_add(3 * (chunk as u64).min(u64::MAX / 64)).saturating_mul(size as u64);
        let cost = Cost { spec, memory, scans: 1, seconds };
        limits.check("TIFF", file.len() as u64, &cost).map_err(|fault| fault.to_string())?;
        image.bytes = self.background(spec.values());
        let pixel = self.bands * size;
        for (number, &(offset, length)) in self.places.iter().enumerate() {
            let (plane, number_in_plane) = (number / self.chunks_per_plane(), number % self.chunks_per_plane());
            let (top, left) =
                (number_in_plane / self.across() * self.chunk[0], number_in_plane % self.across() * self.chunk[1]);
            // A sparse GeoTIFF has no bytes for an empty tile.
            if length == 0 {
                continue;
            }
            let end = offset.checked_add(length).filter(|&end| end <= file.len() as u64);
            let stored = end.map(|end| &file[offset as usize..end as usize]).ok_or_else(|| {
                let kind = if self.is_tiled { "tile" } else { "strip" };
                format!("{kind} {number} is outside the file, which is cut short; fetch it again")
            })?;
            let rows = if self.is_tiled { self.chunk[0] } else { self.chunk[0].min(self.height - top) };
            let values = self.values(stored, rows, in_chunk)?;
            let (width, part) = ((self.width - left).min(self.chunk[1]), in_chunk * size);
            for row in 0..rows.min(self.height - top) {
                let from = &values[row * self.chunk[1] * part..][..width * part];
                let to = &mut image.bytes[((top + row) * self.width + left) * pixel..][..width * pixel];
                if part == pixel {
                    to.copy_from_slice(from);
                    continue;
                }
                for (from, to) in from.chunks_exact(part).zip(to.chunks_exact_mut(pixel)) {
                    to[plane * size..][..size].copy_from_slice(from);
                }
            }
        }
        Ok(image)
    }

    /// Returns an image filled with zeros, or with the nodata value if a strip or tile is missing.
    fn background(&self, values: usize) -> Vec<u8> {
        let is_sparse = self.places.iter().any(|&(_, length)| length == 0);
        let value = self.nodata.filter(|_| is_sparse).unwrap_or(0.0);
        let dtype = self.samples.dtype();
        if value == 0.0 {
            return vec![0; values * dtype.bytes()];
        }
        super::values::encode(dtype, value).iter().copied().cycle().take(values * dtype.bytes()).collect()
    }

    /// Returns the values of a strip or tile as [`Samples::dtype`], little-endian.
    fn values(&self, stored: &[u8], rows: usize, bands: usize) -> Result<Vec<u8>, String> {
        let reversed: Vec<u8>;
        let stored = if self.reversed_bits {
            reversed = stored.iter().map(|byte| byte.reverse_bits()).collect();
            &reversed
        } else {
            stored
        };
        let row_bits = self.chunk[1].saturating_mul(bands).saturating_mul(self.samples.bits() as usize);
        if self.samples.is_packed() {
            // Each row begins at a byte boundary, so the crate can treat it as bytes.
            let row = row_bits.div_ceil(8);
            let DecodingResult::U8(bytes) = self.decompress(stored, [rows, row, 1], (8, 1))? else {
                return Err(unexpected());
            };
            let count = self.chunk[1] * bands;
            return Ok(bytes.chunks_exact(row).flat_map(|row| unpack(row, count, self.samples.bits())).collect());
        }
        let kind = (self.samples.bits() as u16, if self.sample_format == 4 { 1 } else { self.sample_format });
        Ok(match self.decompress(stored, [rows, self.chunk[1], bands], kind)? {
            DecodingResult::U8(values) => values,
            DecodingResult::I8(values) => values.into_iter().flat_map(|value| i16::from(value).to_le_bytes()).collect(),
            DecodingResult::U16(values) => values.into_iter().flat_map(u16::to_le_bytes).collect(),
            DecodingResult::I16(values) => values.into_iter().flat_map(i16::to_le_bytes).collect(),
            DecodingResult::F16(values) => {
                values.into_iter().flat_map(|value: f16| value.to_f32().to_le_bytes()).collect()
            }
            DecodingResult::F32(values) => values.into_iter().flat_map(f32::to_le_bytes).collect(),
            _ => return Err(unexpected()),
        })
    }

    /// Returns an error if a zstd frame asks for a window that is much larger than its strip or tile, which has `bytes`
    /// bytes.
    fn check_window(&self, stored: &[u8], bytes: u64) -> Result<(), String> {
        /// RFC 8878 says that every decoder should support this window size.
        const USUAL: u64 = 8 << 20;
        // Magic number, flags, window. Frames with a single segment have no window: they are as large as their content.
        let &[0x28, 0xb5, 0x2f, 0xfd, flags, window, ..] = stored else { return Ok(()) };
        let base = 1u64 << (10 + (window >> 3));
        let size = if flags & 0x20 == 0 { base + base / 8 * u64::from(window & 7) } else { 0 };
        match self.compression == ZSTD && size > bytes.next_power_of_two().max(USUAL) {
            true => Err(format!(
                "a TIFF with a zstd window of {size} bytes, but its strips or tiles have only {bytes} bytes; save it again"
            )),
            false => Ok(()),
        }
    }

    /// Decompresses a strip or tile. Passes it to the crate as a separate TIFF with a single strip.
    fn decompress(
        &self,
        stored: &[u8],
        [rows, width, bands]: [usize; 3],
        kind: (u16, u16),
    ) -> Result<DecodingResult, String> {
        self.check_window(stored, rows as u64 * width as u64 * bands as u64 * 4)?;
        let head = self.strip_header([rows as u32, width as u32, bands as u32], kind, stored.len() as u32);
        let decoder = Decoder::new(Cursor::new([&head, stored].concat())).map_err(fault)?;
        // The strip's size has already been checked against the limits of the conversion.
        decoder.with_limits(tiff::decoder::Limits::unlimited()).read_chunk(0).map_err(fault)
    }

    /// Returns the header and directory for a TIFF with one strip. The caller appends the strip, which has `length`
    /// bytes. `bits` and `format` (SampleFormat) give the sample type.
    fn strip_header(&self, [rows, width, bands]: [u32; 3], (bits, format): (u16, u16), length: u32) -> Vec<u8> {
        const SHORT: u16 = 3;
        const LONG: u16 = 4;
        let entries: [(Tag, u16, u32); 12] = [
            (Tag::ImageWidth, LONG, width),
            (Tag::ImageLength, LONG, rows),
            (Tag::BitsPerSample, SHORT, bits.into()),
            (Tag::Compression, SHORT, self.compression.into()),
            (Tag::PhotometricInterpretation, SHORT, 1),
            (Tag::StripOffsets, LONG, 8 + 2 + 12 * 12 + 4),
            (Tag::SamplesPerPixel, SHORT, bands),
            (Tag::RowsPerStrip, LONG, rows),
            (Tag::StripByteCounts, LONG, length),
            (Tag::PlanarConfiguration, SHORT, 1),
            (Tag::Predictor, SHORT, self.predictor.into()),
            (Tag::SampleFormat, SHORT, format.into()),
        ];
        let short = |value: u16| if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let long = |value: u32| if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut head = if self.is_big_endian { b"MM".to_vec() } else { b"II".to_vec() };
        head.extend(short(42));
        head.extend(long(8));
        head.extend(short(entries.len() as u16));
        for (tag, kind, value) in entries {
            head.extend(short(tag.to_u16()));
            head.extend(short(kind));
            head.extend(long(1));
            match kind {
                SHORT => head.extend([short(value as u16), [0; 2]].concat()),
                _ => head.extend(long(value)),
            }
        }
        head.extend(long(0));
        head
    }
}

/// Parses a nodata value. C libraries write NaN and infinities in different ways.
fn parse_nodata(text: &str) -> Result<Option<f64>, String> {
    let text = text.trim_matches(['\0', ' ', '\t', '\n', '\r']);
    let lower = text.to_lowercase();
    let has = |part: &str| lower.contains(part);
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) if text.is_empty() => Ok(None),
        Err(_) if has("nan") || has("#ind") => Ok(Some(f64::NAN)),
        Err(_) if has("#inf") => Ok(Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY })),
        Err(_) => Err(format!("a TIFF whose nodata value `{}` is not a number; set it with --nodata", printable(text))),
    }
}

/// Returns `count` values with `bits` bits each. The first value is in the highest bits.
fn unpack(row: &[u8], count: usize, bits: u32) -> Vec<u8> {
    let (mut values, mut buffer, mut filled) = (Vec::with_capacity(2 * count), 0u32, 0);
    let (mut bytes, size) = (row.iter(), if bits <= 8 { 1 } else { 2 });
    for _ in 0..count {
        while filled < bits {
            buffer = buffer << 8 | u32::from(bytes.next().copied().unwrap_or(0));
            filled += 8;
        }
        filled -= bits;
        let value = buffer >> filled;
        buffer &= (1 << filled) - 1;
        values.extend_from_slice(&value.to_le_bytes()[..size]);
    }
    values
}

fn unexpected() -> String {
    "a TIFF with an unexpected sample type".into()
}

fn fault(error: TiffError) -> String {
    match error {
        TiffError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            "a TIFF that is cut short; fetch it again".into()
        }
        TiffError::UnsupportedError(e) => format!("a TIFF that cannot be read: {e}; save it with another program"),
        other => format!("a damaged TIFF: {other}; save it or fetch it again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodata_values_of_c_libraries() {
        let parsed = |text| parse_nodata(text).map(|value| value.map(|value| value.to_string()));
        let found = ["-9999\0", " 1e3 ", "nan", "-nan(ind)", "1.#QNAN", "-1.#IND", "-1.#INF", "\0"]
            .map(|text| parsed(text).unwrap());
        let expected = ["-9999", "1000", "NaN", "NaN", "NaN", "NaN", "-inf"].map(|text| Some(text.to_string()));
        assert_eq!((&found[..7], &found[7]), (&expected[..], &None));
        assert!(parsed("none").unwrap_err().contains("nodata value `none`"));
    }

    #[test]
    fn packed_values_are_unpacked() {
        assert_eq!(unpack(&[0b1010_0110, 0b1100_0000], 5, 2), [2, 2, 1, 2, 3]);
        assert_eq!(unpack(&[0xab, 0xcd, 0xef, 0x12, 0x30], 3, 12), [0xbc, 0x0a, 0xef, 0x0d, 0x23, 0x01]);
        assert_eq!(unpack(&[0b1000_0000], 3, 1), [1, 0, 0]);
    }
}
