//! Builds TIFF files with any tags, strips and tiles.

use std::collections::BTreeMap;

/// The value of a tag.
#[derive(Clone)]
pub enum Tag {
    Short(Vec<u16>),
    Long(Vec<u32>),
    Text(String),
}

pub fn short(value: u16) -> Tag {
    Tag::Short(vec![value])
}

pub fn long(value: u32) -> Tag {
    Tag::Long(vec![value])
}

pub fn text(value: &str) -> Tag {
    Tag::Text(value.to_string())
}

/// The tags of a page by number.
pub type Tags = BTreeMap<u16, Tag>;

/// Returns the tags of an uncompressed grey page with a band for each entry of `bits`, and `more` tags, which may replace
/// them.
pub fn tags(height: u32, width: u32, bits: &[u16], more: impl IntoIterator<Item = (u16, Tag)>) -> Tags {
    let mut tags = Tags::from([
        (256, long(width)),
        (257, long(height)),
        (258, Tag::Short(bits.to_vec())),
        (259, short(1)),
        (262, short(1)),
        (277, short(bits.len() as u16)),
    ]);
    tags.extend(more);
    tags
}

/// A page: its tags, and its strips, or tiles if `is_tiled`.
pub struct Page<'a> {
    pub tags: &'a Tags,
    pub chunks: &'a [Vec<u8>],
    pub is_tiled: bool,
}

/// Returns a TIFF with one page in one strip.
pub fn one_strip(tags: &Tags, values: &[u8]) -> Vec<u8> {
    tiff(&[Page { tags, chunks: &[values.to_vec()], is_tiled: false }], None)
}

/// Writes a classic little-endian TIFF. The last page points to page `next`, if given.
pub fn tiff(pages: &[Page<'_>], next: Option<usize>) -> Vec<u8> {
    let mut file = b"II*\0\0\0\0\0".to_vec();
    let (mut link, mut starts) = (4, Vec::new());
    for page in pages {
        let mut offsets = Vec::new();
        for chunk in page.chunks {
            offsets.push(file.len() as u32);
            file.extend(chunk);
        }
        let sizes: Vec<u32> = page.chunks.iter().map(|chunk| chunk.len() as u32).collect();
        let mut fields: Vec<(u16, u16, u32, Vec<u8>)> = Vec::new();
        for (tag, value) in page.tags {
            let (kind, count, bytes) = match value {
                Tag::Short(values) => (3, values.len(), values.iter().flat_map(|v| v.to_le_bytes()).collect()),
                Tag::Long(values) => (4, values.len(), values.iter().flat_map(|v| v.to_le_bytes()).collect()),
                Tag::Text(text) => (2, text.len() + 1, [text.as_bytes(), &[0]].concat()),
            };
            fields.push((*tag, kind, count as u32, bytes));
        }
        let [of_offsets, of_sizes] = if page.is_tiled { [324, 325] } else { [273, 279] };
        for (tag, values) in [(of_offsets, &offsets), (of_sizes, &sizes)] {
            fields.push((tag, 4, values.len() as u32, values.iter().flat_map(|v: &u32| v.to_le_bytes()).collect()));
        }
        fields.sort();
        let mut entries = Vec::new();
        for (tag, kind, count, mut bytes) in fields {
            if bytes.len() > 4 {
                let at = file.len() as u32;
                file.extend(bytes);
                bytes = at.to_le_bytes().to_vec();
            }
            bytes.resize(4, 0);
            entries.push([&tag.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes(), &bytes].concat());
        }
        let start = file.len() as u32;
        starts.push(start);
        file[link..link + 4].copy_from_slice(&start.to_le_bytes());
        file.extend((entries.len() as u16).to_le_bytes());
        file.extend(entries.concat());
        link = file.len();
        file.extend([0; 4]);
    }
    if let Some(next) = next {
        file[link..link + 4].copy_from_slice(&starts[next].to_le_bytes());
    }
    file
}

/// A page with `bands` interleaved bands in one strip. `format` is SampleFormat: 1 is unsigned, 2 signed, 3 float.
pub fn strip(
    height: u32,
    width: u32,
    bands: u16,
    bits: u16,
    format: u16,
    values: &[u8],
    more: &[(u16, &str)],
) -> Vec<u8> {
    let bits = vec![bits; bands.into()];
    let format = [(339, Tag::Short(vec![format; bands.into()]))];
    let more = more.iter().map(|&(tag, value)| (tag, text(value)));
    one_strip(&tags(height, width, &bits, format.into_iter().chain(more)), values)
}
