//! Grouped convolutions whose groups do not fill channel blocks, for which oneDNN has nothing but plain loops: neighbouring groups are
//! merged until they do, and the weights between different groups are zero.

use super::affine;
use super::buf::AlignedBuf;
use super::device::Cpu;
use super::format::Format;
use super::layout::Md;
use crate::backend::op::Conv;
use crate::backend::{Arena, Error, Gradients, ParamFormat, Pass, PlanRequest, Planned, Slot, TensorDesc};

/// A convolution with fewer groups, and its weights.
struct Plan {
    inner: affine::Plan,
    /// Place of each weight among the merged ones.
    places: Vec<u32>,
    /// Merged weights, then the bias, and their gradients.
    weights: Arena<Cpu>,
    gradients: Arena<Cpu>,
    slots: Vec<Slot>,
}

/// Plans a convolution by merged groups; none where oneDNN has no fast one for these either.
pub(super) fn plan(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Result<Option<Box<dyn Planned<Cpu>>>, Error> {
    let each = [r.x[0].shape.c / op.groups, op.out_channels / op.groups];
    let fills = |merged: &usize| each.iter().all(|channels| (channels * merged).is_multiple_of(cpu.block));
    let whole = |merged: &usize| op.groups.is_multiple_of(*merged);
    let least = (2..op.groups).filter(whole).find(fills);
    for merged in least.into_iter().chain([op.groups]) {
        let fewer = op.clone().groups(op.groups / merged);
        let inner = affine::Plan::conv(cpu, &PlanRequest { formats: None, ..*r }, &fewer)?;
        if !inner.is_slow() {
            return Ok(Some(Box::new(Plan::new(cpu, inner, op, merged, each)?)));
        }
    }
    Ok(None)
}

/// The place of every weight (O, I / groups, kernel) in the layout of the merged ones.
fn places(layout: &Md, op: &Conv, merged: usize, [inputs, outputs]: [usize; 2]) -> Vec<u32> {
    let taps = op.kernel[0] * op.kernel[1];
    let mut places = vec![0; op.out_channels * inputs * taps];
    layout.pairs(|plain, place| {
        let (tap, input, output) = (plain % taps, plain / taps % (inputs * merged), plain / taps / (inputs * merged));
        // outputs count through all groups, inputs within a merged one
        if input / inputs == output / outputs % merged {
            places[(output * inputs + input % inputs) * taps + tap] = place as u32;
        }
    });
    places
}

impl Plan {
    fn new(cpu: &Cpu, inner: affine::Plan, op: &Conv, merged: usize, each: [usize; 2]) -> Result<Self, Error> {
        let places = places(inner.weights(), op, merged, each);
        let mut end = 0;
        let slot = |format: Format| {
            let len = format.elems();
            end += len;
            Slot { chunk: 0, offset: end - len, len }
        };
        let slots: Vec<Slot> = inner.formats().into_iter().map(slot).collect();
        let gradients = if inner.trains() { end } else { 0 };
        Ok(Self { inner, places, weights: Arena::new(cpu, &[end])?, gradients: Arena::new(cpu, &[gradients])?, slots })
    }

    /// Puts the weights in their places; those between groups stay zero.
    fn spread(&mut self, pass: &Pass<'_, Cpu>) {
        let to = self.weights.get_mut(self.slots[0]);
        self.places.iter().zip(pass.params.get(pass.slots[0])).for_each(|(place, w)| to[*place as usize] = *w);
        if let Some(bias) = self.slots.get(1) {
            self.weights.get_mut(*bias).copy_from_slice(pass.params.get(pass.slots[1]));
        }
    }
}

/// The pass of the merged convolution.
fn own<'a>(pass: &Pass<'a, Cpu>, params: &'a Arena<Cpu>, slots: &'a [Slot]) -> Pass<'a, Cpu> {
    Pass { params, slots, ..*pass }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.inner.output()
    }

    fn formats(&self) -> Vec<Format> {
        let bias = self.slots.get(1).map(|bias| Format::Plain(bias.len));
        [Some(Format::Plain(self.places.len())), bias].into_iter().flatten().collect()
    }

    fn state_bytes(&self) -> usize {
        let arenas = self.weights.chunks.iter().chain(&self.gradients.chunks);
        self.inner.state_bytes() + 4 * (self.places.len() + arenas.map(|a| a.as_slice().len()).sum::<usize>())
    }

    fn implementation(&self) -> String {
        format!("merged {}", self.inner.implementation())
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        self.spread(pass);
        self.inner.forward(&own(pass, &self.weights, &self.slots), x, y)
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Gradients { x, y, dy, dy2, dx, dparams } = g;
        let merged = Gradients { x, y, dy, dy2, dx, dparams: &mut self.gradients };
        self.inner.backward(&own(pass, &self.weights, &self.slots), merged)?;
        let from = self.gradients.get(self.slots[0]);
        let to = dparams.get_mut(pass.slots[0]);
        to.iter_mut().zip(&self.places).for_each(|(d, place)| *d = from[*place as usize]);
        if let Some(bias) = self.slots.get(1) {
            dparams.get_mut(pass.slots[1]).copy_from_slice(self.gradients.get(*bias));
        }
        Ok(())
    }
}
