//! One operation on made-up tensors: the time of each of its passes alone.

use std::time::Instant;

use backend::{Arena, Backend, Buffer, DrawKey, Error, Gradients, ParamFormat, Planned, Slot, TensorDesc};
use loaders::Draws;

/// Values that are drawn; longer tensors repeat them.
const DRAWN: usize = 1 << 16;

/// A pass of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The output.
    Forward,
    /// The parameters' gradients.
    Weights,
    /// The input's gradient.
    Input,
}

impl Pass {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Weights, Self::Input];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Weights => "weights",
            Self::Input => "input",
        }
    }
}

/// An implementation's parameters and their gradients, in its formats.
pub struct Parameters<B: Backend> {
    values: Arena<B>,
    gradients: Arena<B>,
    slots: Vec<Slot>,
}

impl<B: Backend> Parameters<B> {
    /// Small values.
    pub fn new(backend: &B, plan: &dyn Planned<B>) -> Result<Self, Error> {
        let mut end = 0;
        let slot = |format: B::Format| {
            let (offset, len) = (end, format.elems());
            // each on a cache line
            end = (end + len).next_multiple_of(16);
            Slot { chunk: 0, offset, len }
        };
        let slots: Vec<Slot> = plan.formats().into_iter().map(slot).collect();
        let values = Arena { chunks: vec![noise(backend, end, 0.1)?] };
        Ok(Self { values, gradients: Arena::new(backend, &[end])?, slots })
    }
}

/// The tensors that all implementations share.
pub struct Work<'a, B: Backend> {
    backend: &'a B,
    x: B::Buf,
    dx: Option<B::Buf>,
    /// The output and its gradient, made for the first implementation.
    ys: Option<[B::Buf; 2]>,
    ids: Vec<u64>,
}

impl<'a, B: Backend> Work<'a, B> {
    /// For inputs in this layout, and their gradient if it is wanted.
    pub fn new(backend: &'a B, x: &TensorDesc, wants_dx: bool) -> Result<Self, Error> {
        let dx = wants_dx.then(|| backend.alloc(x.elems())).transpose()?;
        Ok(Self { backend, x: noise(backend, x.elems(), 1.0)?, dx, ys: None, ids: (0..x.n as u64).collect() })
    }

    /// Milliseconds of one pass.
    pub fn time(&mut self, plan: &mut dyn Planned<B>, with: &mut Parameters<B>, pass: Pass) -> Result<f64, Error> {
        let elems = plan.output().elems();
        let [y, dy] = match &mut self.ys {
            Some(ys) => ys,
            none => none.insert([self.backend.alloc(elems)?, noise(self.backend, elems, 1.0)?]),
        };
        let Parameters { values, gradients, slots } = with;
        let around = backend::Pass {
            backend: self.backend,
            params: values,
            slots,
            running: &[],
            running_at: 0,
            training: true,
            // then only the input's gradient is made
            frozen: pass == Pass::Input,
            key: DrawKey { seed: 0, epoch: 0, ids: &self.ids },
            across: None,
        };
        let start = Instant::now();
        if pass == Pass::Forward {
            plan.forward(&around, &[&self.x], y)?;
        } else {
            let dx = self.dx.as_mut().filter(|_| pass == Pass::Input);
            plan.backward(&around, Gradients { x: &[&self.x], y, dy, dy2: None, dx: vec![dx], dparams: gradients })?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

/// Values between `-scale` and `scale`.
fn noise<B: Backend>(backend: &B, elems: usize, scale: f32) -> Result<B::Buf, Error> {
    let mut draws = Draws::new(1, 0, 0, 0);
    let drawn: Vec<f32> = (0..DRAWN.min(elems)).map(|_| scale * (2.0 * draws.unit() - 1.0)).collect();
    let mut buffer = backend.alloc(elems)?;
    for first in (0..elems).step_by(DRAWN) {
        buffer.write(first, &drawn[..DRAWN.min(elems - first)])?;
    }
    Ok(buffer)
}
