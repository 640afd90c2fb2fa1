//! The header of a sequential JPEG file with a single scan. It has the information for finding blocks in the scan's
//! data, and for making a JPEG file from some of them.

use super::bits::HuffmanTable;
use super::markers::MarkerReader;

/// Maximum number of components: luma and chroma. Files with four inks are not supported here.
pub(super) const COMPONENTS: usize = 3;
/// Maximum number of Huffman tables per class (DC and AC).
const TABLES: usize = 4;

const DHT: u8 = 0xc4;
const SOF0: u8 = 0xc0;
const SOF1: u8 = 0xc1;
const SOS: u8 = 0xda;
const DQT: u8 = 0xdb;
const DRI: u8 = 0xdd;
const APP0: u8 = 0xe0;
const APP14: u8 = 0xee;
const COMMENT: u8 = 0xfe;

/// A colour component of the image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Component<'a> {
    /// Number of the component's blocks per MCU.
    pub blocks: usize,
    pub dc: HuffmanTable<'a>,
    pub ac: HuffmanTable<'a>,
}

/// The contents of the header.
#[derive(Debug, Clone, Copy)]
pub(super) struct SequentialJpeg<'a> {
    pub width: usize,
    pub height: usize,
    /// Width and height of an MCU in pixels.
    pub mcu: (usize, usize),
    components: [Option<Component<'a>>; COMPONENTS],
    /// The data after the scan's header.
    pub data: &'a [u8],
    /// Offset of height and width in the copied header.
    size_at: usize,
}

struct Frame<'a> {
    height: usize,
    width: usize,
    /// For each component: id, sampling factors, quantisation table.
    components: &'a [[u8; 3]],
    size_at: usize,
}

impl<'a> SequentialJpeg<'a> {
    /// Reads the header of a file and copies the parts that decoding needs to `header`. Returns `None` if the file is
    /// not supported: if it is progressive, lossless or arithmetically coded, or has more than one scan, four inks,
    /// more than 8 bits or restart intervals.
    pub fn parse(file: &'a [u8], header: &mut Vec<u8>) -> Option<Self> {
        header.clear();
        header.extend_from_slice(file.get(..2)?);
        let mut walk = MarkerReader { file, at: 2 };
        let (mut frame, mut dc, mut ac) = (None, [None; TABLES], [None; TABLES]);
        loop {
            let marker = walk.marker()?;
            let mut body = walk.segment()?;
            let at = header.len();
            if matches!(marker, DHT | SOF0 | SOF1 | SOS | DQT | APP0 | APP14) {
                header.extend_from_slice(&[0xff, marker]);
                header.extend_from_slice(&u16::try_from(body.len() + 2).ok()?.to_be_bytes());
                header.extend_from_slice(body);
            }
            match marker {
                SOF0 | SOF1 if frame.is_none() => frame = Some(Frame::read(body, at + 5)?),
                DHT => {
                    while let Some((&id, rest)) = body.split_first() {
                        body = rest;
                        let tables = if id >> 4 == 0 { &mut dc } else { &mut ac };
                        *tables.get_mut(usize::from(id & 15))? = Some(HuffmanTable::parse(&mut body)?);
                    }
                }
                SOS => return frame?.scan(body, &dc, &ac, &file[walk.at..]),
                DRI if body != [0, 0] => return None,
                DQT | DRI | APP0..=0xef | COMMENT => {}
                _ => return None,
            }
        }
    }

    /// Returns the components, in the order of their blocks in an MCU.
    pub fn components(&self) -> impl Iterator<Item = &Component<'a>> {
        self.components.iter().flatten()
    }

    /// Returns the number of MCUs across and down.
    pub fn mcus(&self) -> (usize, usize) {
        (self.width.div_ceil(self.mcu.0), self.height.div_ceil(self.mcu.1))
    }

    /// Returns the number of blocks per MCU, summed over all components.
    pub fn blocks(&self) -> usize {
        self.components().map(|component| component.blocks).sum()
    }

    /// Writes another size into the copied header. Returns `None` if a JPEG cannot have this size.
    pub fn resize(&self, header: &mut [u8], width: usize, height: usize) -> Option<()> {
        let size = header.get_mut(self.size_at..self.size_at + 4)?;
        size[..2].copy_from_slice(&u16::try_from(height).ok()?.to_be_bytes());
        size[2..].copy_from_slice(&u16::try_from(width).ok()?.to_be_bytes());
        Some(())
    }
}

impl<'a> Frame<'a> {
    fn read(body: &'a [u8], size_at: usize) -> Option<Self> {
        let &[8, h1, h0, w1, w0, count, ref rest @ ..] = body else { return None };
        let (components, rest) = rest.as_chunks::<3>();
        let (height, width) = (u16::from_be_bytes([h1, h0]).into(), u16::from_be_bytes([w1, w0]).into());
        let fits = matches!(count, 1 | 3) && components.len() == usize::from(count) && rest.is_empty();
        (fits && height > 0 && width > 0).then_some(Self { height, width, components, size_at })
    }

    /// Combines this frame with the scan header `body` and the tables that were defined before it.
    fn scan(
        self,
        body: &[u8],
        dc: &[Option<HuffmanTable<'a>>; TABLES],
        ac: &[Option<HuffmanTable<'a>>; TABLES],
        data: &'a [u8],
    ) -> Option<SequentialJpeg<'a>> {
        let (&count, rest) = body.split_first()?;
        let (selectors, rest) = rest.split_at_checked(2 * usize::from(count))?;
        let selectors = selectors.as_chunks::<2>().0;
        if selectors.len() != self.components.len() || rest != [0, 63, 0] {
            return None;
        }
        let mut components = [None; COMPONENTS];
        let (mut most_across, mut most_down) = (1, 1);
        for ((place, &[id, tables]), &[own, sampling, _]) in components.iter_mut().zip(selectors).zip(self.components) {
            let (across, down) = (usize::from(sampling >> 4), usize::from(sampling & 15));
            let is_usual = (1..=4).contains(&across) && (1..=4).contains(&down) && id == own;
            // Programs disagree about the sampling factors of an image with a single component, so only 1 x 1 is
            // accepted.
            if !is_usual || selectors.len() == 1 && sampling != 0x11 {
                return None;
            }
            (most_across, most_down) = (most_across.max(across), most_down.max(down));
            let (dc, ac) = (*dc.get(usize::from(tables >> 4))?, *ac.get(usize::from(tables & 15))?);
            *place = Some(Component { blocks: across * down, dc: dc?, ac: ac? });
        }
        let Self { height, width, size_at, .. } = self;
        let mcu = (8 * most_across, 8 * most_down);
        Some(SequentialJpeg { width, height, mcu, components, data, size_at })
    }
}
