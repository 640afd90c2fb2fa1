//! What a step knows of the parameters that it changes.

use backend::update::{Normed, Norms, rates};
use backend::{Backend, Buffer, Error, ParamGroup};

/// What a step knows of the parameters that it changes.
pub(super) struct StepPlan<B: Backend> {
    /// Tensors, chunk by chunk.
    pub norms: Norms,
    /// Of each chunk.
    pub groups: Vec<Vec<ParamGroup>>,
    /// See [`rates`].
    pub rates: B::Buf,
}

impl<B: Backend> StepPlan<B> {
    /// For these tensors of each chunk.
    pub fn new(backend: &B, tensors: Vec<Vec<Normed>>, limit: Option<f64>) -> Result<Self, Error> {
        let plain = rates::plain(tensors.iter().flatten().map(|tensor| tensor.factor));
        let mut rates = backend.alloc(plain.len())?;
        rates.write(0, &plain)?;
        let groups = groups(&tensors);
        Ok(Self { norms: Norms { tensors, limit }, groups, rates })
    }

    /// The same for the second pass of a rule, whose directions have the weight decay already.
    pub fn along(backend: &B, tensors: &[Vec<Normed>]) -> Result<Self, Error> {
        let whole = |of_chunk: &Vec<Normed>| {
            of_chunk.iter().map(|tensor| Normed { weight_decay: 0.0, ..tensor.clone() }).collect()
        };
        Ok(Self { groups: groups(tensors), ..Self::new(backend, tensors.iter().map(whole).collect(), None)? })
    }
}

/// The parameter groups of each chunk; neighbours with the same numbers are one group.
fn groups(tensors: &[Vec<Normed>]) -> Vec<Vec<ParamGroup>> {
    let mut number = 0..;
    let mut of_chunk = |tensors: &Vec<Normed>| {
        let mut groups: Vec<ParamGroup> = Vec::new();
        for (tensor, number) in tensors.iter().zip(&mut number) {
            let own = tensor.adapts || tensor.factor != 1.0;
            let rate = if own { rates::FIRST + number } else { rates::PLAIN };
            let (range, weight_decay) = (tensor.range.clone(), tensor.weight_decay as f32);
            match groups.last_mut() {
                Some(last) if (last.weight_decay, last.rate) == (weight_decay, rate) => last.range.end = range.end,
                _ => groups.push(ParamGroup { range, weight_decay, rate }),
            }
        }
        groups
    };
    tensors.iter().map(&mut of_chunk).collect()
}
