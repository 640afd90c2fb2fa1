//! One optimizer step over all chunks of a graph: clipping, trust ratios, the update. How a rule moves an element is in
//! [`crate::backend::Rule`].

use std::ops::Range;

use super::{Method, Norms};
use crate::backend::{Arena, Backend, Error, Stretch, Update};
use crate::nn::{Graph, Param};

/// Added to the norm before a limit is divided by it, as PyTorch's `clip_grad_norm_`.
const NORM_EPS: f64 = 1e-6;

/// What holds for a parameter, by its name and shape, and for all gradients.
#[derive(Clone, Copy, Debug)]
pub struct Policy<D, A> {
    /// Weight decay of a parameter of this name and plain shape.
    pub decay: D,
    /// Whether it may have a rate of its own.
    pub adapt: A,
    /// Largest norm of all gradients together.
    pub clip_norm: Option<f64>,
    /// Largest magnitude of an element of a gradient.
    pub clip_value: Option<f64>,
}

/// One parameter in its chunk.
#[derive(Clone, Debug)]
struct Tensor {
    range: Range<usize>,
    weight_decay: f64,
    adapt: bool,
}

/// What a step tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    /// Whether all parameters are still finite.
    pub finite: bool,
    /// Norm of all gradients together before it was limited; only where it was asked for.
    pub grad_norm: Option<f64>,
}

/// A method with its slots, chunk by chunk as the parameters.
pub struct Optimizer<B: Backend> {
    method: Box<dyn Method>,
    clip_norm: Option<f64>,
    clip_value: Option<f64>,
    tensors: Vec<Vec<Tensor>>,
    slots: Vec<Arena<B>>,
    steps: u64,
}

impl<B: Backend> Optimizer<B> {
    /// For the parameters of `graph`.
    pub fn new<D, A>(graph: &Graph<B>, method: Box<dyn Method>, policy: Policy<D, A>) -> Result<Self, Error>
    where
        D: Fn(&str, &[usize]) -> f64,
        A: Fn(&str, &[usize]) -> bool,
    {
        let layout = graph.layout();
        let tensor = |p: &Param<B>| Tensor {
            range: p.slot.range(),
            weight_decay: (policy.decay)(&p.name, &p.spec.shape),
            adapt: method.adapts() && (policy.adapt)(&p.name, &p.spec.shape),
        };
        let tensors = (0..layout.chunks.len()).map(|c| layout.of_chunk(c).into_iter().map(tensor).collect()).collect();
        let mut slots = Vec::new();
        for &(_, start) in method.slots() {
            let mut arena = Arena::new(graph.backend(), &layout.chunks)?;
            for (i, p) in layout.params.iter().enumerate().filter(|_| start != 0.0) {
                graph.pack(i, &vec![start; p.spec.elems()], &mut arena)?;
            }
            slots.push(arena);
        }
        let Policy { clip_norm, clip_value, .. } = policy;
        Ok(Self { method, clip_norm, clip_value, tensors, slots, steps: 0 })
    }

    /// One step from the gradients that lie in the graph, the sums over all ranks; clipping changes them in place.
    pub fn step(&mut self, graph: &mut Graph<B>, lr: f64) -> Result<Stepped, Error> {
        self.steps += 1;
        let (backend, weights, grads) = graph.arenas();
        if let Some(limit) = self.clip_value {
            grads.chunks.iter_mut().try_for_each(|chunk| backend.clamp(chunk, limit as f32))?;
        }
        backend.inspect(&grads.chunks)?;
        let squares = match self.clip_norm.is_some() || self.method.adapts() {
            true => self.squares(backend, grads)?,
            false => Vec::new(),
        };
        let grad_norm = self.clip_norm.map(|_| squares.iter().flatten().sum::<f64>().sqrt());
        let limited = self.clip_norm.zip(grad_norm).map(|(limit, norm)| limit / (norm + NORM_EPS));
        // a norm that is NaN must reach the parameters, where it is found
        let scale = limited.filter(|part| *part < 1.0 || part.is_nan()).unwrap_or(1.0);
        let update = Update { rule: self.method.rule(self.steps), lr, gradient_scale: scale as f32 };
        let mut finite = true;
        for chunk in 0..weights.chunks.len() {
            let w = &mut weights.chunks[chunk];
            let squares = squares.get(chunk).map_or(&[][..], Vec::as_slice);
            let stretches = self.stretches(backend, chunk, w, squares, scale, lr)?;
            let mut slots: Vec<&mut B::Buf> = self.slots.iter_mut().map(|slot| &mut slot.chunks[chunk]).collect();
            finite &= backend.update(&update, &stretches, w, &grads.chunks[chunk], &mut slots)?;
        }
        Ok(Stepped { finite, grad_norm })
    }

    /// Of every tensor of every chunk.
    fn squares(&self, backend: &B, arena: &Arena<B>) -> Result<Vec<Vec<f64>>, Error> {
        arena.chunks.iter().zip(&self.tensors).map(|(x, tensors)| backend.squares(x, &ranges(tensors))).collect()
    }

    /// What the update does where in a chunk; neighbours that are treated alike are one stretch.
    fn stretches(
        &self,
        backend: &B,
        chunk: usize,
        w: &B::Buf,
        gradient_squares: &[f64],
        scale: f64,
        lr: f64,
    ) -> Result<Vec<Stretch>, Error> {
        let tensors = &self.tensors[chunk];
        let mut trust = vec![1.0; tensors.len()];
        if self.method.adapts() {
            let weight_squares = backend.squares(w, &ranges(tensors))?;
            let squares = weight_squares.iter().zip(gradient_squares);
            for ((trust, t), (w, g)) in trust.iter_mut().zip(tensors).zip(squares).filter(|((_, t), _)| t.adapt) {
                let norms = Norms { weight: w.sqrt(), gradient: scale * g.sqrt() };
                *trust = self.method.trust(norms, t.weight_decay, lr) as f32;
            }
        }
        let mut stretches: Vec<Stretch> = Vec::new();
        for (Tensor { range, weight_decay, .. }, trust) in tensors.iter().cloned().zip(trust) {
            let weight_decay = weight_decay as f32;
            match stretches.last_mut() {
                Some(last) if (last.weight_decay, last.trust) == (weight_decay, trust) => last.range.end = range.end,
                _ => stretches.push(Stretch { range, weight_decay, trust }),
            }
        }
        Ok(stretches)
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Goes on after so many steps; Adam's corrections depend on it.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// The slots by name: arenas of the parameters' layout, see [`Graph::unpack`].
    pub fn slots(&self) -> impl Iterator<Item = (&'static str, &Arena<B>)> {
        self.method.slots().iter().map(|slot| slot.0).zip(&self.slots)
    }

    /// The same for writing, see [`Graph::pack`].
    pub fn slots_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Arena<B>)> {
        self.method.slots().iter().map(|slot| slot.0).zip(&mut self.slots)
    }
}

fn ranges(tensors: &[Tensor]) -> Vec<Range<usize>> {
    tensors.iter().map(|t| t.range.clone()).collect()
}
