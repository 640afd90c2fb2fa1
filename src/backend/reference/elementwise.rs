//! ReLU, tanh, sum of two, copy.

use super::device::Reference;
use super::host_buf::HostBuf;
use crate::backend::{Error, Gradients, Pass, Planned, TensorDesc};

/// Which function.
pub(super) enum Kind {
    Relu,
    Tanh,
    Add,
    Copy,
}

/// An element-wise op of known size.
pub(super) struct Plan {
    pub kind: Kind,
    pub y: TensorDesc,
}

/// max(v, 0), but NaN stays NaN: a diverged network must not look healthy.
pub(super) fn relu(v: f32) -> f32 {
    if v <= 0.0 { 0.0 } else { v }
}

/// Zeroes the gradient where ReLU gave zero.
pub(super) fn mask(dy: &mut [f32], y: &[f32]) {
    for (d, y) in dy.iter_mut().zip(y) {
        if *y <= 0.0 {
            *d = 0.0;
        }
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<usize> {
        Vec::new()
    }

    fn state_bytes(&self) -> usize {
        0
    }

    fn implementation(&self) -> String {
        "loops".into()
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        for i in 0..self.y.elems() {
            let v = x[0].0[i];
            y.0[i] = match self.kind {
                Kind::Relu => relu(v),
                Kind::Tanh => v.tanh(),
                Kind::Add => v + x[1].0[i],
                Kind::Copy => v,
            };
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, g: Gradients<'_, Reference>) -> Result<(), Error> {
        let n = self.y.elems();
        match self.kind {
            Kind::Relu => mask(&mut g.dy.0[..n], &g.y.0),
            Kind::Tanh => g.dy.0[..n].iter_mut().zip(&g.y.0).for_each(|(d, y)| *d *= 1.0 - y * y),
            Kind::Copy => {}
            Kind::Add => {
                if let Some(dx) = g.dx {
                    dx.0[..n].copy_from_slice(&g.dy.0[..n]);
                }
            }
        }
        Ok(())
    }
}
