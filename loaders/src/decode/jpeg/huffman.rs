//! The Huffman tables of a JPEG file: codes by symbol, and symbols by the bits that follow.

use super::bits::BitReader;

/// Bits that are looked up at once; longer codes are rare.
const LOOKUP: u32 = 10;
/// The longest code.
const LONGEST: usize = 16;

/// A table as a DHT segment defines it: the number of codes of each length from 1, then their symbols.
#[derive(Debug, Clone, Copy)]
pub(super) struct Definition<'a> {
    counts: &'a [u8; LONGEST],
    symbols: &'a [u8],
}

/// The code of a symbol; of length 0 if the table has none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Code {
    pub bits: u16,
    pub length: u8,
}

/// Codes by symbol.
pub(super) type Codes = [Code; 256];

impl<'a> Definition<'a> {
    /// Takes a table from the front of a DHT segment; `None` if it is cut short, or has more codes of a length than there can be.
    pub fn take(segment: &mut &'a [u8]) -> Option<Self> {
        let (counts, rest) = segment.split_first_chunk::<LONGEST>()?;
        let (symbols, rest) = rest.split_at_checked(counts.iter().map(|&count| usize::from(count)).sum())?;
        *segment = rest;
        // codes of a length that are left, the one of all ones among them, which is never used
        let mut left = 1usize;
        for &count in counts {
            left = (2 * left).checked_sub(usize::from(count)).filter(|left| *left > 0)?;
        }
        Some(Self { counts, symbols })
    }

    /// Each symbol with its code, in order.
    fn each(&self, mut see: impl FnMut(u8, Code)) {
        let (mut bits, mut symbols) = (0u16, self.symbols.iter());
        for (length, &count) in (1..).zip(self.counts) {
            for &symbol in symbols.by_ref().take(count.into()) {
                see(symbol, Code { bits, length });
                bits = bits.wrapping_add(1);
            }
            bits = bits.wrapping_shl(1);
        }
    }

    /// The codes by symbol.
    pub fn codes(&self) -> Codes {
        let mut codes = [Code::default(); 256];
        self.each(|symbol, code| codes[usize::from(symbol)] = code);
        codes
    }
}

/// Finds the symbol of a code.
pub(super) struct Lookup {
    /// By the next bits: symbol and length of its code; length 0 if that is longer.
    short: Vec<(u8, u8)>,
    /// Codes that are longer, ascending.
    long: Vec<(Code, u8)>,
}

impl Lookup {
    pub fn new(definition: &Definition<'_>) -> Self {
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

    /// Reads a symbol, of which all bits must have been loaded; `None` if there is no such code.
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
