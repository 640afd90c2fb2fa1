//! Memory layout on the GPU: tensors are channels last, and arenas hold the parameters in f32, with weights in the
//! order in which the GPU reads them.

use net::{Reads, Shape};

use super::device::Cuda;
use crate::error::READS_FLATTENED;
use crate::{Error, ParamFormat, PlanRequest, TensorDesc};

/// Describes n images in (h, w, c) order.
pub fn channels_last(n: usize, shape: Shape) -> TensorDesc {
    TensorDesc { n, shape, block: shape.c.max(1), bf16: false }
}

/// Returns true if the memory order is (n, h, w, c).
fn is_channels_last(desc: &TensorDesc) -> bool {
    desc.block == desc.shape.c || desc.shape.plane() == 1 || desc.shape.c == 1
}

/// Returns the layout in which the operation reads each input. Returns an error if it cannot read an input in the order
/// in which it is stored.
pub fn layouts(r: &PlanRequest<'_, Cuda>) -> Result<Vec<TensorDesc>, Error> {
    let unfit = |why: &str| Error::Unsupported { op: r.name.into(), why: why.into() };
    let by_channel = r.op.reads() == Reads::Channels;
    if !r.x.iter().all(is_channels_last) {
        return Err(unfit(
            "on a GPU, the input of this layer must be stored in channels-last order, but it is stored as planes",
        ));
    }
    let flattened = r.x.iter().zip(r.shapes).any(|(d, s)| d.shape != *s && d.shape.plane() > 1 && d.shape.c > 1);
    if flattened && (by_channel || r.x.len() > 1) {
        return Err(unfit(READS_FLATTENED));
    }
    // a linear layer, or an operation that works element by element, reads a flattened image in the image's memory
    // order
    let seen = |(d, s): (&TensorDesc, &Shape)| if flattened { *d } else { channels_last(d.n, *s) };
    Ok(r.x.iter().zip(r.shapes).map(seen).collect())
}

/// The memory order of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// PyTorch's order. The value is the number of elements.
    Plain(usize),
    /// Stored as (outer, plane, channels), which is (outer, channels, plane) in PyTorch: the filters of a convolution,
    /// and the weights of a linear layer that reads an image.
    ChannelsLast {
        outer: usize,
        /// Number of input channels per group.
        channels: usize,
        /// Positions in the filter or the image.
        plane: usize,
    },
}

impl ParamFormat for Format {
    fn elems(&self) -> usize {
        match self {
            Format::Plain(n) => *n,
            Format::ChannelsLast { outer, channels, plane } => outer * channels * plane,
        }
    }

    fn describe(&self) -> String {
        match self {
            Format::Plain(n) => n.describe(),
            Format::ChannelsLast { outer, channels, plane } => {
                format!("channels last: {outer} x {plane} positions x {channels} channels")
            }
        }
    }

    fn pack(&self, plain: &[f32], own: &mut [f32]) -> Result<(), Error> {
        self.check(plain.len(), own.len())?;
        self.each(|from, to| own[to] = plain[from]);
        Ok(())
    }

    fn unpack(&self, own: &[f32], plain: &mut [f32]) -> Result<(), Error> {
        self.check(plain.len(), own.len())?;
        self.each(|to, from| plain[to] = own[from]);
        Ok(())
    }
}

impl Format {
    /// Calls `f(index in PyTorch's order, index in the arena)` for every element.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        match *self {
            Format::Plain(n) => (0..n).for_each(|i| f(i, i)),
            Format::ChannelsLast { outer, channels, plane } => {
                for o in 0..outer {
                    for c in 0..channels {
                        for p in 0..plane {
                            f((o * channels + c) * plane + p, (o * plane + p) * channels + c);
                        }
                    }
                }
            }
        }
    }

    fn check(&self, plain: usize, own: usize) -> Result<(), Error> {
        if plain == self.elems() && own == plain {
            return Ok(());
        }
        let (expected, got) = (format!("{} elements", self.elems()), format!("{plain} and {own}"));
        Err(Error::Size { op: "a parameter".into(), expected, got })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpack_reverses_pack() {
        let format = Format::ChannelsLast { outer: 2, channels: 3, plane: 4 };
        let plain: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let mut own = vec![0.0; 24];
        format.pack(&plain, &mut own).unwrap();
        // output 0, position 0: channels 0, 1, 2
        assert_eq!(own[..3], [0.0, 4.0, 8.0]);
        let mut back = vec![0.0; 24];
        format.unpack(&own, &mut back).unwrap();
        assert_eq!(back, plain);
        assert!(format.pack(&plain[1..], &mut own).is_err());
    }
}
