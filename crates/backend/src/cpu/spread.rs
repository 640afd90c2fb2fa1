//! Convolutions for which oneDNN has only plain loops. They are computed as larger convolutions with zeros among their
//! weights. Groups that do not fill channel blocks are merged until they do, dilated kernels become dense, and channels
//! of zeros are added.

use net::{Conv, Op, Shape};

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::layout::{Format, Md};
use super::{affine, relayout};
use crate::{Arena, Error, Gradients, Keeps, ParamFormat, Pass, PlanRequest, Planned, Slot, TensorDesc};

/// The larger convolution and its weights.
struct Plan {
    inner: affine::Plan,
    /// Layout of the output. It includes added channels if the images are copied.
    y: TensorDesc,
    /// Number of output channels without added channels.
    outputs: usize,
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
    /// Number of groups of the larger convolution.
    groups: usize,
    /// Number of input channels, then of output channels. Added channels have zero weights. They are the padding in the
    /// last channel block, or also fill additional blocks.
    channels: [usize; 2],
}

impl Enlargement {
    /// Returns the possible enlargements, the smallest first. Groups stay as they are, are merged until they fill
    /// channel blocks, or are all merged. Each of these comes without and with a dense kernel. A single group also comes
    /// with whole blocks of input channels, if the image `x` has blocks. Combinations that change nothing are left out.
    fn all(op: &Conv, x: &TensorDesc, block: usize) -> Vec<Self> {
        let channels = [x.shape.c, op.out_channels];
        let whole = channels.map(|channels| channels.next_multiple_of(block));
        let each = channels.map(|channels| channels / op.groups);
        let by = |merged: usize, groups: usize, channels| Self { merged, dense: false, groups, channels };
        let fills = |merged: &usize| each.iter().all(|each| (each * merged).is_multiple_of(block));
        let filling = (2..op.groups).filter(fills).map(|merged| {
            let groups = op.groups.div_ceil(merged);
            by(merged, groups, each.map(|each| each * merged * groups))
        });
        // If `merged` does not divide the number of groups, groups of zeros are added. If they do not fit into the padding
        // of the last blocks, the images are copied. Copies pay off if they halve the number of multiplications.
        let products = |g: &Self| g.channels[0] * g.channels[1] / g.groups;
        let completes = |g: &Self| x.block == block && (g.channels == whole || 2 * products(g) <= whole[0] * whole[1]);
        let filling = filling.filter(|g| g.channels == channels || op.zero_bias().is_empty() && completes(g));
        let mut all = vec![by(1, op.groups, channels)];
        all.extend(filling.take(1));
        all.push(by(op.groups, 1, channels));
        if x.block == block && whole[0] != channels[0] {
            all.push(by(op.groups, 1, [whole[0], channels[1]]));
        }
        let dense = |each| (op.dilation != [1, 1]).then_some(Self { dense: true, ..each });
        let mut all: Vec<Self> = all.into_iter().flat_map(|each| [Some(each), dense(each)]).flatten().collect();
        all.retain(|each| each.merged > 1 || each.dense || each.channels != channels);
        all.dedup();
        all
    }

    /// Returns the larger convolution.
    fn enlarge(self, op: &Conv) -> Conv {
        let larger = Conv { out_channels: self.channels[1], ..op.clone().groups(self.groups) };
        if self.dense { Conv { kernel: op.extent(), dilation: [1, 1], ..larger } } else { larger }
    }
}

/// Plans a convolution as a larger convolution. Returns `None` if oneDNN has no fast primitive for any of the possible
/// enlargements.
pub(super) fn plan(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Result<Option<Box<dyn Planned<Cpu>>>, Error> {
    let Shape { h, w, .. } = r.x[0].shape;
    for enlargement in Enlargement::all(op, &r.x[0], cpu.block) {
        let (larger, shape) = (enlargement.enlarge(op), Shape::image(enlargement.channels[0], h, w));
        let x = r.x[0].with_shape(shape);
        let blocks = |channels: [usize; 2]| channels.map(|channels| channels.div_ceil(cpu.block));
        let copies = x.block == cpu.block && blocks(enlargement.channels) != blocks([r.x[0].shape.c, op.out_channels]);
        let (input_fusion, output_fusion) = if copies { (None, None) } else { (r.input_fusion, r.output_fusion) };
        let (of, shapes) = (Op::Conv(larger.clone()), [shape]);
        let request =
            PlanRequest { op: &of, shapes: &shapes, x: &[x], formats: None, input_fusion, output_fusion, ..*r };
        let inner = affine::Plan::conv(cpu, &request, &larger)?;
        if !inner.is_slow() {
            // without copies, the added channels are the padding of the output's last block
            let y = if copies { inner.output() } else { inner.output().with_shape(r.output()?) };
            let plan = Box::new(Plan::new(cpu, inner, op, enlargement, [r.x[0], y])?);
            return if copies { relayout::with_more_channels(cpu, r, plan, &x).map(Some) } else { Ok(Some(plan)) };
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
        let each = enlargement.channels[0] / enlargement.groups;
        let (input, output) = (rest % each, rest / each);
        // Added channels have group numbers that do not exist.
        let same_group = input / inputs == output / outputs % enlargement.merged;
        let exists = same_group && output < op.out_channels;
        if exists && row.is_multiple_of(step[0]) && column.is_multiple_of(step[1]) {
            let tap = row / step[0] * kw + column / step[1];
            places[(output * inputs + input % inputs) * kh * kw + tap] = place as u32;
        }
    });
    places
}

impl Plan {
    fn new(
        cpu: &Cpu,
        inner: affine::Plan,
        op: &Conv,
        enlargement: Enlargement,
        [x, y]: [TensorDesc; 2],
    ) -> Result<Self, Error> {
        let places = places(inner.weights(), op, enlargement, x.shape.c);
        let mut end = 0;
        let slot = |format: Format| {
            let len = format.elems();
            end += len;
            Slot { bucket: 0, offset: end - len, len }
        };
        let slots: Vec<Slot> = inner.formats().into_iter().map(slot).collect();
        let gradients = if inner.trains() { end } else { 0 };
        Ok(Self {
            inner,
            y,
            outputs: op.out_channels,
            places,
            weights: Arena::new(cpu, &[end])?,
            gradients: Arena::new(cpu, &[gradients])?,
            slots,
        })
    }

    /// Copies the weights to their positions. The elements between them are always zero.
    fn spread(&mut self, pass: &Pass<'_, Cpu>) {
        let to = self.weights.get_mut(self.slots[0]);
        self.places.iter().zip(pass.params.get(pass.slots[0])).for_each(|(place, w)| to[*place as usize] = *w);
        if let Some(bias) = self.slots.get(1) {
            self.weights.get_mut(*bias)[..self.outputs].copy_from_slice(pass.params.get(pass.slots[1]));
        }
    }
}

/// Returns the pass for the larger convolution.
fn own<'a>(pass: &Pass<'a, Cpu>, params: &'a Arena<Cpu>, slots: &'a [Slot]) -> Pass<'a, Cpu> {
    Pass { params, slots, ..*pass }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        let bias = self.slots.get(1).map(|_| Format::Plain(self.outputs));
        [Some(Format::Plain(self.places.len())), bias].into_iter().flatten().collect()
    }

    fn state_bytes(&self) -> usize {
        let arenas = self.weights.buckets.iter().chain(&self.gradients.buckets);
        self.inner.state_bytes() + 4 * (self.places.len() + arenas.map(|a| a.as_slice().len()).sum::<usize>())
    }

    fn tensors_for_backward(&self) -> Keeps {
        self.inner.tensors_for_backward()
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
            dparams.get_mut(pass.slots[1]).copy_from_slice(&self.gradients.get(*bias)[..self.outputs]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RegNetY-400MF has 55 groups with 8 channels, and the padding of the last block has room for another group.
    /// RegNetX-1.6GF has 17 groups with 24 channels. The image needs an additional block for another group.
    #[test]
    fn an_odd_number_of_groups_is_padded_with_zeros() {
        let x = TensorDesc { block: 16, ..TensorDesc::plain(2, Shape::image(440, 7, 7)) };
        let all = Enlargement::all(&Conv::new(440, 3).groups(55), &x, 16);
        assert_eq!((all[0].merged, all[0].groups, all[0].channels), (2, 28, [448, 448]));
        let plain = TensorDesc { block: 1, ..x };
        let all = Enlargement::all(&Conv::new(440, 3).groups(55), &plain, 16);
        assert_eq!((all[0].merged, all[0].groups, all[0].channels), (55, 1, [440, 440]));
        let x = x.with_shape(Shape::image(408, 14, 14));
        let all = Enlargement::all(&Conv::new(408, 3).groups(17), &x, 16);
        assert_eq!((all[0].merged, all[0].groups, all[0].channels), (2, 9, [432, 432]));
    }
}
