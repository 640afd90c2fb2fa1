//! What GoogLeNet and the Inception networks share: convolution, batch norm and ReLU under one name, rows of them, and modules that put
//! the channels of several rows one after another.

use super::blocks::conv_norm_act;
use crate::{Activation, Concat, Conv, Id, Init, NetSpec, Norm, Pool};

/// A convolution that keeps the plane.
pub fn same(channels: usize, [h, w]: [usize; 2]) -> Conv {
    Conv::new(channels, 1).kernel([h, w]).pads([h / 2, w / 2, h / 2, w / 2])
}

/// A square convolution that keeps the plane.
pub fn square(channels: usize, k: usize) -> Conv {
    same(channels, [k, k])
}

/// A square convolution without padding.
pub fn valid(channels: usize, k: usize, stride: usize) -> Conv {
    Conv::new(channels, k).stride(stride)
}

/// A network under construction.
pub struct Builder {
    /// The network so far.
    pub net: NetSpec,
    /// The norm behind each convolution.
    pub norm: Norm,
    /// How its convolutions start.
    pub init: Init,
    /// The average pool of 3x3 that keeps the plane.
    pub average: Pool,
}

impl Builder {
    /// A convolution, its norm and ReLU.
    pub fn unit(&mut self, path: &str, conv: Conv, x: Id) -> Id {
        let conv = conv.init(self.init);
        self.as_it_is(path, conv, x)
    }

    /// The same with a start of its own.
    pub fn as_it_is(&mut self, path: &str, conv: Conv, x: Id) -> Id {
        let names = [format!("{path}.conv"), format!("{path}.bn")];
        let norm = self.norm.clone();
        conv_norm_act(&mut self.net, [&names[0], &names[1]], conv, norm, Some(Activation::Relu), x)
    }

    /// Units one after another, numbered from `first` behind `prefix`.
    pub fn row(&mut self, prefix: &str, first: usize, convs: impl IntoIterator<Item = Conv>, x: Id) -> Id {
        (first..).zip(convs).fold(x, |x, (i, conv)| self.unit(&format!("{prefix}{i}"), conv, x))
    }

    /// A 1x3 and a 3x1 convolution of one input side by side, named `prefix` and a, b.
    pub fn fan(&mut self, prefix: &str, channels: usize, x: Id) -> Id {
        let a = self.unit(&format!("{prefix}a"), same(channels, [1, 3]), x);
        let b = self.unit(&format!("{prefix}b"), same(channels, [3, 1]), x);
        self.concat(prefix, &[a, b])
    }

    /// A pool.
    pub fn pool(&mut self, name: &str, pool: Pool, x: Id) -> Id {
        self.net.add(name, pool, x)
    }

    /// The average pool that keeps the plane, named `pool`, and a 1x1 unit named `unit`.
    pub fn pooled(&mut self, [pool, unit]: [&str; 2], channels: usize, x: Id) -> Id {
        let average = self.average.clone();
        let x = self.pool(pool, average, x);
        self.unit(unit, square(channels, 1), x)
    }

    /// The end of a module.
    pub fn concat(&mut self, path: &str, branches: &[Id]) -> Id {
        self.net.join(&format!("{path}.concat"), Concat, branches)
    }
}
