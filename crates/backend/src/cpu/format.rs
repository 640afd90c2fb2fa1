//! How a parameter lies in the CPU's memory.

use super::layout::Md;
use super::panels::Panels;
use crate::{Error, ParamFormat};

/// The memory order of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Weights in a layout of oneDNN's choice.
    Weights(Box<Md>),
    /// Weights of a linear layer of our own.
    Panels(Panels),
    /// A vector of this many elements.
    Plain(usize),
}

impl ParamFormat for Format {
    fn elems(&self) -> usize {
        match self {
            Format::Weights(md) => md.elems(),
            Format::Panels(panels) => panels.elems(),
            Format::Plain(n) => *n,
        }
    }

    fn pack(&self, plain: &[f32], packed: &mut [f32]) -> Result<(), Error> {
        match self {
            Format::Weights(md) => {
                fits([md.plain_elems(), md.elems()], plain, packed)?;
                md.pack(plain, packed);
            }
            Format::Panels(panels) => {
                fits([panels.plain_elems(), panels.elems()], plain, packed)?;
                panels.pack(plain, packed);
            }
            Format::Plain(n) => packed[..*n].copy_from_slice(plain),
        }
        Ok(())
    }

    fn unpack(&self, packed: &[f32], plain: &mut [f32]) -> Result<(), Error> {
        match self {
            Format::Weights(md) => {
                fits([md.plain_elems(), md.elems()], plain, packed)?;
                md.unpack(packed, plain);
            }
            Format::Panels(panels) => {
                fits([panels.plain_elems(), panels.elems()], plain, packed)?;
                panels.unpack(packed, plain);
            }
            Format::Plain(n) => plain.copy_from_slice(&packed[..*n]),
        }
        Ok(())
    }
}

/// Whether both sides of a copy of weights are as long as their layout says.
fn fits(elems: [usize; 2], plain: &[f32], packed: &[f32]) -> Result<(), Error> {
    for (what, elems, len) in [("plain", elems[0], plain.len()), ("packed", elems[1], packed.len())] {
        if len < elems {
            let (expected, got) = (format!("{elems} elements"), len.to_string());
            return Err(Error::Size { op: format!("{what} side of a weight copy"), expected, got });
        }
    }
    Ok(())
}
