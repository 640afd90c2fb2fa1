//! Multi-head self-attention without its projections.

use super::shape::Shape;
use super::spec::{OpSpec, Reads};
use super::toml_keys::{Keys, TomlOp};

/// For each head, softmax(Q K^T / sqrt(d)) V over all positions (Vaswani et al. 2017, arXiv 1706.03762, eq. 1), where d
/// is the number of channels in a head's queries. The input has the channels for all queries Q, then for all keys K,
/// then for all values V, as a fused projection computes them. In each third, the first d channels belong to the first
/// head. The output has a third as many channels as the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    pub heads: usize,
}

impl Attention {
    /// Returns the number of channels in a head's queries, if the input has `channels` channels.
    pub fn head_channels(&self, channels: usize) -> usize {
        channels / 3 / self.heads
    }

    /// Returns the factor that multiplies the products of queries and keys.
    pub fn scale(&self, channels: usize) -> f64 {
        1.0 / (self.head_channels(channels) as f64).sqrt()
    }
}

impl OpSpec for Attention {
    fn kind(&self) -> &'static str {
        "attention"
    }

    fn reads(&self) -> Reads {
        Reads::Channels
    }

    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        let (x, heads) = (x[0], self.heads);
        if !x.c.is_multiple_of(3) {
            return Err(format!(
                "its input must have the same number of channels for queries, keys and values, so a multiple of 3; it has {}",
                x.c
            ));
        }
        if heads == 0 || !(x.c / 3).is_multiple_of(heads) {
            return Err(format!("{heads} heads cannot share {} channels equally", x.c / 3));
        }
        Ok(Shape { c: x.c / 3, ..x })
    }

    fn macs(&self, x: Shape) -> u64 {
        // Q K^T, and the product of the softmax and V
        2 * (x.plane() as u64).pow(2) * (x.c / 3) as u64
    }
}

impl TomlOp for Attention {
    const WORDS: &'static [&'static str] = &["attention"];

    fn cure(&self, inputs: &[Shape]) -> &'static str {
        match *inputs {
            [x] if !x.c.is_multiple_of(3) => {
                "add a conv with kernel = 1 and three times the channels, which computes queries, keys and values"
            }
            [_] => "heads must divide a third of the input's channels",
            _ => "",
        }
    }

    fn plain(_: &str) -> Self {
        Self { heads: 1 }
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.needed("heads", &mut self.heads);
    }
}
