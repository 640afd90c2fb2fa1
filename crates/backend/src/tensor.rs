//! The memory layout of a batch of activations.

use net::Shape;

/// A batch of tensors, channels in blocks: `[n][ceil(c / block)][h][w][block]`. Block 1 is plain NCHW. Channels that pad the
/// last block hold zeros, and every op keeps them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorDesc {
    /// Rows of the batch.
    pub n: usize,
    /// One sample.
    pub shape: Shape,
    /// Channels that lie side by side.
    pub block: usize,
    /// Whether its numbers are bf16, of 16 bits; else f32, or what the device holds all activations in.
    pub bf16: bool,
}

impl TensorDesc {
    /// Plain NCHW.
    pub fn plain(n: usize, shape: Shape) -> Self {
        Self { n, shape, block: 1, bf16: false }
    }

    /// The same layout for another shape.
    pub fn with_shape(&self, shape: Shape) -> Self {
        Self { shape, ..*self }
    }

    /// Blocks of channels.
    pub fn blocks(&self) -> usize {
        self.shape.c.div_ceil(self.block)
    }

    /// Elements of one sample, padding included.
    pub fn sample_elems(&self) -> usize {
        self.blocks() * self.block * self.shape.plane()
    }

    /// Elements of the batch, padding included.
    pub fn elems(&self) -> usize {
        self.n * self.sample_elems()
    }

    /// f32 words that they take.
    pub fn words(&self) -> usize {
        if self.bf16 { self.elems().div_ceil(2) } else { self.elems() }
    }

    /// The same layout of f32.
    pub fn in_f32(&self) -> Self {
        Self { bf16: false, ..*self }
    }

    /// Place of channel `c`, position `p` (row * w + column) within a sample.
    pub fn at(&self, c: usize, p: usize) -> usize {
        ((c / self.block) * self.shape.plane() + p) * self.block + c % self.block
    }

    /// Whether memory order is plain NCHW (also when blocks of single positions make it so).
    pub fn is_plain(&self) -> bool {
        self.block == 1 || (self.shape.plane() == 1 && self.shape.c.is_multiple_of(self.block))
    }

    /// Copies to plain NCHW.
    pub fn to_plain(&self, from: &[f32], to: &mut [f32]) {
        let (sample, plane) = (self.sample_elems(), self.shape.plane());
        for n in 0..self.n {
            for c in 0..self.shape.c {
                for p in 0..plane {
                    to[(n * self.shape.c + c) * plane + p] = from[n * sample + self.at(c, p)];
                }
            }
        }
    }

    /// Copies from plain NCHW; padding becomes zero.
    pub fn from_plain(&self, from: &[f32], to: &mut [f32]) {
        let (sample, plane) = (self.sample_elems(), self.shape.plane());
        if !self.shape.c.is_multiple_of(self.block) {
            to[..self.elems()].fill(0.0);
        }
        for n in 0..self.n {
            for c in 0..self.shape.c {
                for p in 0..plane {
                    to[n * sample + self.at(c, p)] = from[(n * self.shape.c + c) * plane + p];
                }
            }
        }
    }
}
