//! Reads and writes bits and Huffman codes of a JPEG's entropy-coded data. In the data, each 0xff byte is followed by a
//! stuffed zero byte.

/// The position of a bit in the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    pub byte: usize,
    /// Number of bits of the same byte that precede this bit, 0 to 7.
    pub bit: u32,
}

impl Position {
    pub fn bits(self) -> u64 {
        8 * self.byte as u64 + u64::from(self.bit)
    }

    pub fn from_bits(bits: u64) -> Self {
        Self { byte: usize::try_from(bits / 8).unwrap_or(usize::MAX), bit: (bits % 8) as u32 }
    }
}

/// Reads bits up to the first marker.
pub(super) struct BitReader<'a> {
    data: &'a [u8],
    /// Index of the next byte to load.
    at: usize,
    /// The loaded bits, starting at the most significant bit.
    window: u64,
    /// Number of valid bits in `window`.
    loaded: u32,
}

impl<'a> BitReader<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, window: 0, loaded: 0 }
    }

    /// Refills the window to at least 56 bits, or with all bits before the next marker.
    #[inline]
    pub fn load(&mut self) {
        if let Some(next) = self.data.get(self.at..).and_then(|rest| rest.first_chunk()) {
            let next = u64::from_be_bytes(*next);
            if !has_byte_of_ones(next) {
                // The bits of a partially loaded byte are loaded again next time.
                self.window |= next >> self.loaded;
                let bytes = (63 - self.loaded) / 8;
                self.at += bytes as usize;
                self.loaded += 8 * bytes;
                return;
            }
        }
        self.load_bytes();
    }

    #[cold]
    fn load_bytes(&mut self) {
        while self.loaded <= 56 {
            let Some(&byte) = self.data.get(self.at) else { return };
            self.at += match byte {
                0xff if self.data.get(self.at + 1) == Some(&0) => 2,
                0xff => return,
                _ => 1,
            };
            self.window |= u64::from(byte) << (56 - self.loaded);
            self.loaded += 8;
        }
    }

    /// Returns the next `count` bits (1 to 32), with zeros after the end.
    #[inline]
    pub fn peek(&self, count: u32) -> u64 {
        self.window >> (64 - count)
    }

    /// Skips `count` (below 32) loaded bits. Returns `None` if fewer bits are loaded.
    #[inline]
    pub fn skip(&mut self, count: u32) -> Option<()> {
        self.loaded = self.loaded.checked_sub(count)?;
        self.window <<= count;
        Some(())
    }

    /// Returns the position of the next bit.
    pub fn position(&self) -> Position {
        let mut byte = self.at;
        for _ in 0..self.loaded.div_ceil(8) {
            let is_stuffed = byte >= 2 && self.data[byte - 2..byte] == [0xff, 0];
            byte -= if is_stuffed { 2 } else { 1 };
        }
        Position { byte, bit: (8 - self.loaded % 8) % 8 }
    }

    /// Returns the data from the next marker on. Returns `None` unless only padding is left before it: fewer than 8
    /// bits, all of them ones.
    pub fn end(&mut self) -> Option<&'a [u8]> {
        self.load();
        let padding = self.loaded < 8 && self.window >> (64 - 8) >> (8 - self.loaded) == (1 << self.loaded) - 1;
        padding.then(|| &self.data[self.at..])
    }
}

fn has_byte_of_ones(bytes: u64) -> bool {
    let zeros = !bytes;
    zeros.wrapping_sub(0x0101_0101_0101_0101) & bytes & 0x8080_8080_8080_8080 != 0
}

pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Bits of the incomplete last byte, starting at the least significant bit.
    pending: u32,
    /// Number of bits in `pending`, 0 to 7.
    count: u32,
}

impl<'a> BitWriter<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, pending: 0, count: 0 }
    }

    /// Returns the number of bits in the incomplete last byte.
    pub fn phase(&self) -> u32 {
        self.count
    }

    /// Appends the lowest `count` bits, at most 16.
    pub fn put(&mut self, bits: u32, count: u32) {
        self.pending = self.pending << count | bits & ((1 << count) - 1);
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.pending >> self.count) as u8;
            self.out.push(byte);
            if byte == 0xff {
                self.out.push(0);
            }
        }
        self.pending &= (1 << self.count) - 1;
    }

    /// Appends the bits of `data` between two positions. The bit offset of `from` must be equal to this writer's
    /// [`phase`](Self::phase). Returns `None` if the positions are in the wrong order or beyond the data.
    pub fn copy(&mut self, data: &[u8], from: Position, to: Position) -> Option<()> {
        debug_assert_eq!(self.count, from.bit);
        if from.byte == to.byte {
            let count = to.bit.checked_sub(from.bit)?;
            // If there is nothing to copy, the position may be the end of the data.
            let byte = if count == 0 { 0 } else { u32::from(*data.get(from.byte)?) };
            self.put(byte >> (8 - to.bit), count);
            return Some(());
        }
        let mut first = from.byte;
        if from.bit > 0 {
            let byte = *data.get(first)?;
            self.put(byte.into(), 8 - from.bit);
            first += if byte == 0xff { 2 } else { 1 };
        }
        self.out.extend_from_slice(data.get(first..to.byte)?);
        if to.bit > 0 {
            self.put(u32::from(*data.get(to.byte)?) >> (8 - to.bit), to.bit);
        }
        Some(())
    }

    /// Pads the last byte with ones.
    pub fn finish(mut self) {
        if self.count > 0 {
            self.put(u32::MAX, 8 - self.count);
        }
    }
}

/// Number of bits that are looked up in the table. Longer codes are rare.
const LOOKUP: u32 = 10;
/// Length of the longest code.
const LONGEST: usize = 16;

/// A table as defined in a DHT segment: the number of codes of each length starting at 1, then their symbols.
#[derive(Debug, Clone, Copy)]
pub(super) struct HuffmanTable<'a> {
    counts: &'a [u8; LONGEST],
    symbols: &'a [u8],
}

/// The code of a symbol. Its length is 0 if the table does not have the symbol.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Code {
    pub bits: u16,
    pub length: u8,
}

/// The codes, indexed by symbol.
pub(super) type Codes = [Code; 256];

impl<'a> HuffmanTable<'a> {
    /// Takes a table from the front of a DHT segment. Returns `None` if it is truncated or has too many codes with the same
    /// length.
    pub fn parse(segment: &mut &'a [u8]) -> Option<Self> {
        let (counts, rest) = segment.split_first_chunk::<LONGEST>()?;
        let (symbols, rest) = rest.split_at_checked(counts.iter().map(|&count| usize::from(count)).sum())?;
        *segment = rest;
        // Number of unused codes of the current length. It must stay positive, because the code of all ones is never
        // used.
        let mut left = 1usize;
        for &count in counts {
            left = (2 * left).checked_sub(usize::from(count)).filter(|left| *left > 0)?;
        }
        Some(Self { counts, symbols })
    }

    /// Calls `visit` for each symbol and its code, from the shortest code to the longest.
    fn each(&self, mut visit: impl FnMut(u8, Code)) {
        let (mut bits, mut symbols) = (0u16, self.symbols.iter());
        for (length, &count) in (1..).zip(self.counts) {
            for &symbol in symbols.by_ref().take(count.into()) {
                visit(symbol, Code { bits, length });
                bits = bits.wrapping_add(1);
            }
            bits = bits.wrapping_shl(1);
        }
    }

    pub fn codes(&self) -> Codes {
        let mut codes = [Code::default(); 256];
        self.each(|symbol, code| codes[usize::from(symbol)] = code);
        codes
    }
}

/// Finds the symbol of a code.
pub(super) struct HuffmanDecoder {
    /// Symbol and code length, indexed by the next [`LOOKUP`] bits of the data. The length is 0 if the code is longer.
    short: Vec<(u8, u8)>,
    /// Codes with more than `LOOKUP` bits and their symbols, in ascending order.
    long: Vec<(Code, u8)>,
}

impl HuffmanDecoder {
    pub fn new(definition: &HuffmanTable<'_>) -> Self {
        let (mut short, mut long) = (vec![(0, 0); 1 << LOOKUP], Vec::new());
        definition.each(|symbol, code| match LOOKUP.checked_sub(code.length.into()) {
            Some(spare) => {
                let first = usize::from(code.bits) << spare;
                short[first..first + (1 << spare)].fill((symbol, code.length));
            }
            None => long.push((code, symbol)),
        });
        Self { short, long }
    }

    /// Reads a symbol. All its bits must have been loaded. Returns `None` if there is no such code.
    #[inline]
    pub fn read(&self, bits: &mut BitReader<'_>) -> Option<u8> {
        let (symbol, length) = self.short[bits.peek(LOOKUP) as usize];
        if length > 0 {
            bits.skip(length.into())?;
            return Some(symbol);
        }
        let is_next = |(code, _): &&(Code, u8)| bits.peek(code.length.into()) == u64::from(code.bits);
        let (code, symbol) = *self.long.iter().find(is_next)?;
        bits.skip(code.length.into())?;
        Some(symbol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_reader_skips_stuffed_zero_bytes() {
        let data = [0x12, 0xff, 0, 0xff, 0, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x7f, 0xff, 0xd9];
        let plain: Vec<u8> =
            data[..16].iter().enumerate().filter(|(i, _)| ![2, 4].contains(i)).map(|(_, b)| *b).collect();
        let places: Vec<usize> = (0..16).filter(|i| ![2, 4].contains(i)).chain([16]).collect();
        for step in 1..=17 {
            let (mut bits, mut at) = (BitReader::new(&data), 0);
            while at + step <= 8 * plain.len() {
                assert_eq!(bits.position(), Position { byte: places[at / 8], bit: (at % 8) as u32 }, "{at}");
                bits.load();
                let expected = (at..at + step).fold(0, |sum, i| sum << 1 | u64::from(plain[i / 8] >> (7 - i % 8) & 1));
                assert_eq!(bits.peek(step as u32), expected, "{at} {step}");
                bits.skip(step as u32).unwrap();
                at += step;
            }
            bits.load();
            assert_eq!(bits.skip((8 * plain.len() - at) as u32 + 1), None);
            let left = 8 * plain.len() - at;
            assert_eq!(bits.end(), (left < 8).then_some(&data[16..]), "{left}");
        }
    }

    #[test]
    fn bit_copies_can_start_and_end_within_a_byte() {
        let data = [0x12, 0xff, 0, 0xff, 0, 0x80, 1, 2];
        let places: Vec<Position> =
            [0, 1, 3, 5, 6, 7].iter().flat_map(|&byte| (0..8).map(move |bit| Position { byte, bit })).collect();
        for (i, &from) in places.iter().enumerate() {
            for &to in &places[i..] {
                let mut out = Vec::new();
                let mut bits = BitWriter::new(&mut out);
                bits.copy(&data, Position::default(), from).unwrap();
                bits.copy(&data, from, to).unwrap();
                bits.copy(&data, to, Position { byte: data.len(), bit: 0 }).unwrap();
                bits.finish();
                assert_eq!(out, data, "{from:?} {to:?}");
            }
        }
        let mut out = Vec::new();
        let beyond = Position { byte: 9, bit: 0 };
        assert_eq!(BitWriter::new(&mut out).copy(&data, Position::default(), beyond), None);
        assert_eq!(BitWriter::new(&mut out).copy(&data, beyond, Position::default()), None);
    }
}
