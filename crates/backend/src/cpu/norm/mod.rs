//! Batch norm with residual and ReLU, in a single pass each way. Forward reads x twice, for the moments and for the
//! result. Backward reads dy and x twice. If threads divide the channel blocks, much of the second reading comes from
//! the cache.
//!
//! `batch` loops over a batch and `rows` computes a row. x and its gradient have the number type X. y, the residual and
//! their gradients have the type Y.

mod batch;
pub(super) mod rows;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::rc::Rc;

use batch::{Affine, Backward, Batch, Channel, InputGradients, Output, Tensors};
use net::Norm;
use rows::Bits;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::Items;
use super::fusion::{Constants, FusedNorm};
use super::layout::Format;
use super::moments::{ChannelSums, Moments, OutputMoments};
use super::number::{Number, by_numbers};
use crate::across::{self, Across};
use crate::{Arena, Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// A batch norm planned for a fixed batch size.
struct Plan {
    x: TensorDesc,
    y: TensorDesc,
    /// Groups of samples that are normalised separately. Usually a single group has all samples.
    groups: Vec<Group>,
}

/// Samples that are normalised together, with their statistics from the last pass.
struct Group {
    batch: Batch,
    /// The batch's first sample in this group.
    first: usize,
    /// Layout of the output and of the residual.
    y: TensorDesc,
    channels: Vec<Channel>,
    /// Values per channel in the statistics, on this rank or in the whole batch.
    n: f64,
    /// Two sums per channel for each thread.
    sums: ChannelSums,
    /// Moments from the convolution that produces x, if this norm is its only reader.
    moments: Option<Rc<OutputMoments>>,
    /// State shared with the only reader of the output. If the reader is a convolution, it may compute the output instead
    /// of this norm. `None` with a residual, with several readers, or without fusion.
    norm: Option<Rc<FusedNorm>>,
    /// The bits of the values that ReLU passed in the last training pass. Empty unless ReLU follows a residual.
    bits: Vec<Bits>,
    /// True if backward may recompute the output.
    recomputes: bool,
}

impl Group {
    /// Returns this group's samples in a tensor, or an empty slice if the tensor is absent.
    fn part<'a, T>(&self, tensor: &'a [T]) -> &'a [T] {
        tensor.get(self.elems()).unwrap_or_default()
    }

    fn part_mut<'a, T>(&self, tensor: &'a mut [T]) -> &'a mut [T] {
        tensor.get_mut(self.elems()).unwrap_or_default()
    }

    fn elems(&self) -> Range<usize> {
        self.batch.row(self.first, 0).start..self.batch.row(self.first + self.batch.x.n, 0).start
    }

    /// Computes the statistics of all channels and y, block by block.
    fn forward_by_blocks<X: Number, Y: Number>(
        &mut self,
        x: (&[X], &[Y]),
        affine: Affine<'_>,
        y: &mut [Y],
        stores_bits: bool,
    ) {
        let Self { batch, channels, sums, n, bits, .. } = self;
        let (each, n) = (batch.x.block, *n);
        let bits = stores_bits.then(|| batch.by_blocks_of(bits, batch.words()));
        let parts = (Items::new(channels, each), batch.by_blocks_of(y, batch.row_len()), bits);
        sums.compute(batch.x.blocks(), parts, |blocks, sums, (channels, y, bits)| {
            let mut output = Output { y, bits };
            for (block, channels) in blocks.zip(channels.chunks_exact_mut(each)) {
                let reference = batch.reference(x.0, block);
                batch.add_moments(x.0, block, 0..batch.x.n, &reference, sums);
                batch.set_statistics(block, &reference, sums, channels);
                batch.set_scale(block, affine, channels, |_, c| [c.mean, c.inverse_std(n, batch.op.eps)]);
                batch.normalise(x, block, 0..batch.x.n, channels, &mut output);
            }
        });
    }

    /// Computes the statistics of all channels. The threads divide the samples.
    fn statistics<X: Number>(&mut self, x: &[X]) {
        let Self { batch, channels, sums, .. } = self;
        let reference: Vec<_> = (0..batch.x.blocks()).map(|block| batch.reference(x, block)).collect();
        let sums = sums.compute(batch.x.n, (), |samples, sums, ()| {
            for (block, reference) in reference.iter().enumerate() {
                batch.add_moments(x, block, samples.clone(), reference, sums);
            }
        });
        for (block, reference) in reference.iter().enumerate() {
            batch.set_statistics(block, reference, &sums, &mut channels[batch.block(block)]);
        }
    }

    /// Computes the statistics from the moments of the convolution that produced x. Returns false if there are no
    /// moments.
    fn known_statistics(&mut self) -> bool {
        let Some(moments) = self.moments.as_ref().and_then(|moments| moments.take()) else { return false };
        let n = self.batch.count();
        for (channel, Moments { reference, offsets, squares, .. }) in self.channels.iter_mut().zip(moments) {
            channel.set_statistics(reference, [offsets, squares], n);
        }
        true
    }

    /// Replaces this rank's statistics by those of the whole batch.
    fn share(&mut self, ranks: &dyn Across, running: &[f32]) -> Result<(), Error> {
        let mut mean: Vec<f64> = self.channels.iter().map(|c| c.mean).collect();
        let mut m2: Vec<f64> = self.channels.iter().map(|c| c.m2).collect();
        self.n = across::statistics(ranks, self.n, running, &mut mean, &mut m2)?;
        for (channel, (mean, m2)) in self.channels.iter_mut().zip(mean.into_iter().zip(m2)) {
            (channel.mean, channel.m2) = (mean, m2);
        }
        Ok(())
    }

    /// Computes scale and shift of all channels. `statistics(index, channel)` returns a mean and 1 / standard
    /// deviation.
    fn set_scale(&mut self, affine: Affine<'_>, statistics: impl Fn(usize, &Channel) -> [f64; 2]) {
        for block in 0..self.batch.x.blocks() {
            self.batch.set_scale(block, affine, &mut self.channels[self.batch.block(block)], &statistics);
        }
    }

    /// Computes y from scale and shift of all channels.
    fn normalise<X: Number, Y: Number>(&mut self, x: (&[X], &[Y]), y: &mut [Y], stores_bits: bool) {
        let Self { batch, channels, bits, .. } = self;
        let parts = (batch.by_samples(y, batch.row_len()), stores_bits.then(|| batch.by_samples(bits, batch.words())));
        batch.threads.divide(batch.x.n, parts, |samples, (y, bits)| {
            let mut output = Output { y, bits };
            batch.each_block(|block| {
                batch.normalise(x, block, samples.clone(), &channels[batch.block(block)], &mut output);
            });
        });
    }

    /// Returns the shared state if a convolution computes the output.
    fn computed_elsewhere(&self) -> Option<&FusedNorm> {
        self.norm.as_deref().filter(|norm| norm.computed_by().is_some())
    }

    /// Returns true if this norm computes its output itself.
    fn writes_output(&self) -> bool {
        self.computed_elsewhere().is_none()
    }

    /// Returns the constants for the convolution that computes the output.
    fn constants(&self) -> Constants {
        let of = |f: fn(&Channel) -> f32| self.channels.iter().map(f).collect();
        Constants { mean: of(|c| c.mean as f32), scale: of(|c| c.scale), shift: of(|c| c.shift) }
    }

    /// Returns true if dx overwrites dy.
    fn in_place(&self) -> bool {
        !self.batch.op.residual && self.batch.x.bf16 == self.y.bf16
    }

    fn forward_in<X: Number, Y: Number>(
        &mut self,
        pass: &Pass<'_, Cpu>,
        x: &[&AlignedBuf],
        y: &mut AlignedBuf,
    ) -> Result<(), Error> {
        let (gamma, beta) = self.batch.op.gamma_beta(pass.slots);
        let affine = (gamma.map(|slot| pass.params.get(slot)), pass.params.get(beta));
        let residual = x.get(1).map_or(&[][..], |residual| Y::from_words(residual.as_slice()));
        let x = (self.part(X::from_words(x[0].as_slice())), self.part(residual));
        let (y, stores_bits) =
            (self.part_mut(Y::from_words_mut(y.as_mut_slice())), pass.training && !self.bits.is_empty());
        let eps = self.batch.op.eps;
        if pass.takes_statistics() {
            self.n = self.batch.count();
            let known = self.known_statistics();
            if !known && self.writes_output() && pass.across.is_none() && self.batch.by_blocks() {
                self.forward_by_blocks(x, affine, y, stores_bits);
                return Ok(());
            }
            if !known {
                self.statistics(x.0);
            }
            if let Some(ranks) = pass.across {
                self.share(ranks, pass.running)?;
            }
            let n = self.n;
            self.set_scale(affine, |_, channel| [channel.mean, channel.inverse_std(n, eps)]);
        } else {
            let (mean, var) = pass.running.split_at(self.batch.x.shape.c);
            self.set_scale(affine, |i, _| [f64::from(mean[i]), 1.0 / (f64::from(var[i]) + f64::from(eps)).sqrt()]);
        }
        match self.computed_elsewhere() {
            Some(norm) => norm.set_constants(self.constants()),
            None => self.normalise(x, y, stores_bits),
        }
        Ok(())
    }

    fn recompute_in<X: Number, Y: Number>(&mut self, x: &AlignedBuf, y: &mut AlignedBuf) {
        let (x, y) = (self.part(X::from_words(x.as_slice())), self.part_mut(Y::from_words_mut(y.as_mut_slice())));
        self.normalise((x, &[]), y, false);
    }

    fn backward_in<X: Number, Y: Number>(
        &mut self,
        pass: &Pass<'_, Cpu>,
        Gradients { x, dy, dy2, dx, dparams, .. }: &mut Gradients<'_, Cpu>,
    ) -> Result<(), Error> {
        let dx = dx.first_mut().and_then(Option::as_mut).map(|dx| self.part_mut(X::from_words_mut(dx.as_mut_slice())));
        let second = self.part(dy2.map_or(&[][..], |d| Y::from_words(d.as_slice())));
        let x = self.part(X::from_words(x[0].as_slice()));
        let own = InputGradients { dy: self.part_mut(Y::from_words_mut(dy.as_mut_slice())), dx };
        let tensors = Tensors { x, bits: &self.bits, second, in_place: self.in_place() };
        let known = self.computed_elsewhere().and_then(FusedNorm::take_sums);
        let (batch, channels, n) = (&self.batch, &self.channels[..], self.n);
        let backward = Backward { batch, channels, n, frozen: pass.frozen, masked: known.is_some(), tensors };
        if known.is_none() && pass.across.is_none() && batch.by_blocks() {
            let sums = backward.by_blocks(own, &mut self.sums);
            self.parameters(pass, &sums, dparams);
            return Ok(());
        }
        let mut sums = known.unwrap_or_else(|| backward.sums(&mut *own.dy, &mut self.sums));
        // The parameters' gradients are summed over the ranks later, with all other gradients. dx needs the whole
        // batch's sums now.
        self.parameters(pass, &sums, dparams);
        if let Some(ranks) = pass.across {
            let (s, sx) = sums.split_at_mut(self.batch.channels());
            across::gradients(ranks, self.batch.x.shape.c, s, sx)?;
        }
        backward.gradients(own, &sums);
        Ok(())
    }

    /// Adds this group's gradients for gamma and beta, which are computed from both sums per channel. The first group
    /// overwrites the previous values instead.
    fn parameters(&self, pass: &Pass<'_, Cpu>, sums: &[f64], gradients: &mut Arena<Cpu>) {
        if pass.frozen {
            return;
        }
        let (s, sx) = sums.split_at(self.batch.channels());
        let (gamma, beta) = self.batch.op.gamma_beta(pass.slots);
        let put = |to: &mut f32, value: f64| *to = if self.first == 0 { value as f32 } else { *to + value as f32 };
        for (i, channel) in self.channels[..self.batch.x.shape.c].iter().enumerate() {
            if let Some(gamma) = gamma {
                let value = sx[i] * channel.inverse_std(self.n, self.batch.op.eps);
                put(&mut gradients.get_mut(gamma)[i], value);
            }
            put(&mut gradients.get_mut(beta)[i], s[i]);
        }
    }
}

/// Returns true if the output is in bf16. Then the residual is in bf16 too.
pub(super) fn writes_bf16(cpu: &Cpu, r: &PlanRequest<'_, Cpu>) -> bool {
    r.may_write_bf16 && cpu.writes_bf16
}

pub(super) fn plan(cpu: &Cpu, op: &Norm, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (x, y) = (r.x[0], TensorDesc { bf16: writes_bf16(cpu, r), ..r.x[0] });
    let rows: Vec<_> = r.norm_groups().collect();
    // A fused convolution computes moments over the whole batch and applies a single scale per channel. So layers with
    // groups are not fused, whatever the batch size, even if only a single group has rows.
    let shares = r.bn_groups == 1;
    let groups = rows.into_iter().map(|rows| {
        let batch = Batch { threads: cpu.threads, op: op.clone(), x: TensorDesc { n: rows.len(), ..x } };
        let channels = vec![Channel::default(); batch.channels()];
        let sums = ChannelSums::new(cpu.threads, 2 * channels.len());
        let moments = r.input_fusion.filter(|_| shares).and_then(|fusion| fusion.moments.get().cloned());
        moments.iter().for_each(|moments| moments.request());
        let norm = r.output_fusion.filter(|_| shares && cpu.fuses && !op.residual).map(|fusion| {
            let norm = fusion.norm.get_or_init(|| Rc::new(FusedNorm::new(r.name, op.relu)));
            Rc::clone(norm)
        });
        let stores_bits = r.train && op.relu && op.residual;
        let bits = vec![0; if stores_bits { batch.x.n * batch.x.blocks() * batch.words() } else { 0 }];
        let recomputes = cpu.recomputes && !op.residual;
        Group { batch, first: rows.start, y, channels, n: 1.0, sums, moments, norm, bits, recomputes }
    });
    Ok(Box::new(Plan { x, y, groups: groups.collect() }))
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        let op = &self.groups[0].batch.op;
        vec![Format::Plain(self.x.shape.c); 1 + usize::from(op.scale)]
    }

    fn state_bytes(&self) -> usize {
        let of = |group: &Group| size_of_val(&group.channels[..]) + group.sums.bytes() + size_of_val(&group.bits[..]);
        self.groups.iter().map(of).sum()
    }

    fn tensors_for_backward(&self) -> Keeps {
        // Without a residual, backward computes ReLU's mask again from the input.
        Keeps::INPUT
    }

    fn implementation(&self) -> String {
        let group = &self.groups[0];
        let moments = group.moments.as_ref().map(|moments| format!(", moments by {}", moments.conv));
        let output = group.computed_elsewhere().and_then(FusedNorm::computed_by).map(|by| format!(", output by {by}"));
        let groups = (self.groups.len() > 1).then(|| format!(", {} groups", self.groups.len()));
        format!("own{}{}{}", moments.unwrap_or_default(), output.unwrap_or_default(), groups.unwrap_or_default())
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        let residual = self.groups[0].batch.op.residual;
        (residual || self.groups[0].in_place()).then_some(usize::from(residual))
    }

    fn adds_two_gradients(&self) -> bool {
        true
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let Self { groups, x: desc, y: to } = self;
        groups.iter_mut().try_for_each(|group| by_numbers!(desc.bf16, to.bf16, group.forward_in(pass, x, &mut *y)))
    }

    fn writes_output(&self) -> bool {
        self.groups[0].writes_output()
    }

    fn can_recompute_output(&self) -> bool {
        self.groups[0].recomputes && self.writes_output()
    }

    fn recompute(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        for group in &mut self.groups {
            by_numbers!(self.x.bf16, self.y.bf16, group.recompute_in(x[0], &mut *y));
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Self { groups, x, y } = self;
        groups.iter_mut().try_for_each(|group| by_numbers!(x.bf16, y.bf16, group.backward_in(pass, &mut g)))
    }

    fn pool_statistics(&self, running: &[f32], sums: &mut [f64]) -> u64 {
        for group in &self.groups {
            let (c, n) = (group.batch.x.shape.c, group.batch.count());
            for (i, channel) in group.channels[..c].iter().enumerate() {
                let d = channel.mean - f64::from(running[i]);
                sums[i] += n * d;
                // this rank's share in the sum for the whole batch
                sums[c + i] += n * (channel.m2 / group.n + d * d);
            }
        }
        (self.x.n * self.x.shape.plane()) as u64
    }
}
