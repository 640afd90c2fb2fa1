//! Convolutions for which oneDNN has only plain loops. They are computed as larger convolutions with zeros among their
//! weights. Groups that do not fill channel blocks are merged into groups that do, dilated kernels become dense, and the
//! padding of a channel block counts as channels.

use net::{Conv, Shape};

use super::affine;
use super::buf::AlignedBuf;
use super::device::Cpu;
use super::layout::Format;
use super::layout::Md;
use crate::{Arena, Error, Gradients, Keeps, ParamFormat, Pass, PlanRequest, Planned, Slot, TensorDesc};

/// The larger convolution and its weights.
struct Plan {
    inner: affine::Plan,
    /// Position of each weight in the larger convolution's weights.
    places: Vec<u32>,
    /// The larger convolution's weights, then its bias. `gradients` has the same order.
    weights: Arena<Cpu>,
    gradients: Arena<Cpu>,
    slots: Vec<Slot>,
}

/// How a convolution is enlarged.
#[derive(Clone, Copy, PartialEq)]
struct Enlargement {
    /// Number of groups that are merged into one.
    merged: usize,
    /// True if a dilated kernel becomes dense, with zero weights in its gaps.
    dense: bool,
    /// Number of input channels. It may include the padding in the last channel block, with zero weights.
    inputs: usize,
}

impl Enlargement {
    /// Returns the possible enlargements, the smallest first. Groups stay as they are, are merged until they fill
    /// channel blocks, or are all merged. Each of these comes without and with a dense kernel. A single group also comes
    /// with whole blocks of input channels, if the image `x` has blocks. Combinations that change nothing are left out.
    fn all(op: &Conv, x: &TensorDesc, block: usize) -> Vec<Self> {
        let inputs = x.shape.c;
        let each = [inputs / op.groups, op.out_channels / op.groups];
        let fills = |merged: &usize| each.iter().all(|channels| (channels * merged).is_multiple_of(block));
        let least = (2..op.groups).filter(|merged| op.groups.is_multiple_of(*merged)).find(fills);
        let mut merged: Vec<usize> = [Some(1), least, Some(op.groups)].into_iter().flatten().collect();
        merged.dedup();
        let all = merged.into_iter().flat_map(|merged| [false, true].map(|dense| Self { merged, dense, inputs }));
        let whole = x.blocks() * x.block;
        let all = all.flat_map(|each| [each, Self { inputs: whole, ..each }]);
        let is_new = |g: &Self| g.merged > 1 || g.dense || g.inputs > inputs;
        let is_possible = |g: &Self| {
            (!g.dense || op.dilation != [1, 1]) && (g.inputs == inputs || g.merged == op.groups && x.block == block)
        };
        let mut all: Vec<Self> = all.filter(|g| is_new(g) && is_possible(g)).collect();
        all.dedup();
        all
    }

    /// Returns the larger convolution.
    fn enlarge(self, op: &Conv) -> Conv {
        let larger = op.clone().groups(op.groups / self.merged);
        if self.dense { Conv { kernel: op.extent(), dilation: [1, 1], ..larger } } else { larger }
    }
}

/// Plans a convolution as a larger convolution. Returns `None` if oneDNN has no fast primitive for any of the possible
/// enlargements.
pub(super) fn plan(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Result<Option<Box<dyn Planned<Cpu>>>, Error> {
    let Shape { c: inputs, h, w } = r.x[0].shape;
    for enlargement in Enlargement::all(op, &r.x[0], cpu.block) {
        let x = [r.x[0].with_shape(Shape::image(enlargement.inputs, h, w))];
        let request = PlanRequest { x: &x, formats: None, ..*r };
        let inner = affine::Plan::conv(cpu, &request, &enlargement.enlarge(op))?;
        if !inner.is_slow() {
            return Ok(Some(Box::new(Plan::new(cpu, inner, op, enlargement, inputs)?)));
        }
    }
    Ok(None)
}

/// Returns the position of every weight (O, I / groups, kernel) in the layout of the larger convolution's weights.
fn places(layout: &Md, op: &Conv, enlargement: Enlargement, inputs: usize) -> Vec<u32> {
    let ([rows, columns], [kh, kw]) = (enlargement.enlarge(op).kernel, op.kernel);
    let step = if enlargement.dense { op.dilation } else { [1, 1] };
    let (inputs, outputs) = (inputs / op.groups, op.out_channels / op.groups);
    let mut places = vec![0; op.out_channels * inputs * kh * kw];
    layout.pairs(|plain, place| {
        let (row, column, rest) = (plain / columns % rows, plain % columns, plain / (rows * columns));
        // Outputs are numbered through all groups, inputs within a merged group.
        let each = enlargement.inputs * enlargement.merged / op.groups;
        let (input, output) = (rest % each, rest / each);
        // padding is in no group, because its number is at least the number of groups
        let same_group = input / inputs == output / outputs % enlargement.merged;
        if same_group && row.is_multiple_of(step[0]) && column.is_multiple_of(step[1]) {
            let tap = row / step[0] * kw + column / step[1];
            places[(output * inputs + input % inputs) * kh * kw + tap] = place as u32;
        }
    });
    places
}

impl Plan {
    fn new(cpu: &Cpu, inner: affine::Plan, op: &Conv, enlargement: Enlargement, inputs: usize) -> Result<Self, Error> {
        let places = places(inner.weights(), op, enlargement, inputs);
        let mut end = 0;
        let slot = |format: Format| {
            let len = format.elems();
            end += len;
            Slot { bucket: 0, offset: end - len, len }
        };
        let slots: Vec<Slot> = inner.formats().into_iter().map(slot).collect();
        let gradients = if inner.trains() { end } else { 0 };
        Ok(Self { inner, places, weights: Arena::new(cpu, &[end])?, gradients: Arena::new(cpu, &[gradients])?, slots })
    }

    /// Copies the weights to their positions. The elements between them are always zero.
    fn spread(&mut self, pass: &Pass<'_, Cpu>) {
        let to = self.weights.get_mut(self.slots[0]);
        self.places.iter().zip(pass.params.get(pass.slots[0])).for_each(|(place, w)| to[*place as usize] = *w);
        if let Some(bias) = self.slots.get(1) {
            self.weights.get_mut(*bias).copy_from_slice(pass.params.get(pass.slots[1]));
        }
    }
}

/// Returns the pass for the larger convolution.
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
        let arenas = self.weights.buckets.iter().chain(&self.gradients.buckets);
        self.inner.state_bytes() + 4 * (self.places.len() + arenas.map(|a| a.as_slice().len()).sum::<usize>())
    }

    fn keeps(&self) -> Keeps {
        self.inner.keeps()
    }

    fn implementation(&self) -> String {
        format!("spread {}", self.inner.implementation())
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        self.spread(pass);
        self.inner.forward(&own(pass, &self.weights, &self.slots), x, y)
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Gradients { x, y, dy, dy2, dx, dparams } = g;
        let larger = Gradients { x, y, dy, dy2, dx, dparams: &mut self.gradients };
        self.inner.backward(&own(pass, &self.weights, &self.slots), larger)?;
        if pass.frozen {
            return Ok(());
        }
        let from = self.gradients.get(self.slots[0]);
        let to = dparams.get_mut(pass.slots[0]);
        to.iter_mut().zip(&self.places).for_each(|(d, place)| *d = from[*place as usize]);
        if let Some(bias) = self.slots.get(1) {
            dparams.get_mut(pass.slots[1]).copy_from_slice(self.gradients.get(*bias));
        }
        Ok(())
    }
}
