//! Implements `Backend` for the CPU: plans operations, computes the loss, and runs the optimizer.

use base::bf16;
use net::{Op, Reads, Shape, for_each_op};

use super::buf::{AlignedBuf, as_u16, as_u16_mut};
use super::device::Cpu;
use super::number::Bf16;
use super::{flat, loss, onednn, relayout, update};
use crate::error::READS_FLATTENED;
use crate::update::Units;
use crate::{
    AlgorithmChoice, Arena, Backend, Buffer, Cores, CrossEntropy, Error, Implementations, LossSums, Norms, ParamGroup,
    PlanRequest, Planned, SoftLoss, TensorDesc, Update,
};

/// Returns the layouts in which the operation reads its inputs. A flattened image in plain order becomes a vector.
fn layouts(r: &PlanRequest<'_, Cpu>) -> Vec<TensorDesc> {
    let block = r.x[0].block;
    let seen = |(d, s): (&TensorDesc, &Shape)| match d.is_plain() {
        // A vector that fills its channel blocks has the same order in both layouts.
        true if s.plane() == 1 && s.c.is_multiple_of(block) => TensorDesc { shape: *s, block, ..*d },
        true => TensorDesc { shape: *s, ..*d },
        false => *d,
    };
    r.x.iter().zip(r.shapes).map(seen).collect()
}

/// Returns an error if the operation would misinterpret the channel blocks of an input.
fn check(r: &PlanRequest<'_, Cpu>) -> Result<(), Error> {
    let (x, by_channel) = (r.x, r.op.reads() == Reads::Channels);
    let whole = |d: &TensorDesc| d.block == d.shape.c;
    let lined_up = |d: &TensorDesc| d.block == x[0].block || whole(d) && whole(&x[0]);
    let same = |d: &TensorDesc| if by_channel { lined_up(d) } else { d.in_f32() == x[0].in_f32() };
    let alike = |d: &TensorDesc| same(d) || (d.is_plain() && x[0].is_plain());
    let why = if !x.iter().all(alike) {
        "the inputs of this layer have different memory layouts, such as the image itself and the output of a convolution; put a \
         convolution or a linear layer before one of the inputs"
    } else if by_channel && x.iter().zip(r.shapes).any(|(d, s)| d.shape != *s) {
        READS_FLATTENED
    } else {
        return Ok(());
    };
    Err(Error::Unsupported { op: r.name.into(), why: why.into() })
}

macro_rules! plan_op {
    ($($file:ident $name:ident,)*) => {
        fn plan_op(cpu: &Cpu, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
            match r.op { $(Op::$name(op) => super::$file::plan(cpu, op, r),)* }
        }
    };
}
for_each_op!(plan_op);

/// Checks the layouts of the inputs and plans the operation.
fn checked(cpu: &Cpu, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    check(r).and_then(|()| plan_op(cpu, r))
}

impl Backend for Cpu {
    fn cores(&self) -> Option<&dyn Cores> {
        Some(self)
    }

    fn describe(&self) -> String {
        let (library, isa, threads) = (onednn::version(), self.isa.name(), self.threads.0);
        let plural = if threads == 1 { "" } else { "s" };
        let factors = self.bf16.map_or("", Bf16::name);
        let order = if self.channels_last { ", channels last" } else { "" };
        let table = match self.algorithm_choice() {
            Some(_) => format!(", {}", self.table.borrow().describe()),
            None => String::new(),
        };
        format!("cpu ({library}, {isa}, {threads} thread{plural}{factors}{order}{table})")
    }

    fn algorithm_choice(&self) -> Option<&dyn AlgorithmChoice> {
        // The tables apply only to f32.
        self.bf16.is_none().then_some(self)
    }

    fn implementations(&self) -> Option<&dyn Implementations<Self>> {
        Some(self)
    }

    fn plan(&self, r: &PlanRequest<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error> {
        let x = layouts(r);
        let r = &PlanRequest { x: &x, ..*r };
        match relayout::required_layouts(self, r) {
            Some(wanted) => relayout::plan(self, r, &wanted, [1, 1], |r| checked(self, r)),
            None => checked(self, r),
        }
    }

    fn upload(&self, images: &[f32], to: &mut AlignedBuf) -> Result<(), Error> {
        to.as_mut_slice()[..images.len()].copy_from_slice(images);
        Ok(())
    }

    fn download(&self, desc: &TensorDesc, from: &AlignedBuf) -> Result<Vec<f32>, Error> {
        let (mut plain, mut wide) = (vec![0.0; desc.n * desc.shape.elems()], Vec::new());
        if desc.bf16 {
            wide.resize(desc.elems(), 0.0);
            bf16::widen_all(&as_u16(from.as_slice())[..wide.len()], &mut wide);
        }
        desc.to_plain(if desc.bf16 { &wide } else { from.as_slice() }, &mut plain);
        Ok(plain)
    }

    fn add_tensors(&self, desc: &TensorDesc, to: &mut AlignedBuf, from: &AlignedBuf) -> Result<(), Error> {
        let (to, from) = (to.as_mut_slice(), from.as_slice());
        match desc.bf16 {
            true => flat::add_halves(self.threads, &mut as_u16_mut(to)[..desc.elems()], as_u16(from)),
            false => flat::add_to(self.threads, to, from),
        }
        Ok(())
    }

    fn reads_bf16(&self, op: &Op, input: usize) -> bool {
        self.writes_bf16
            && match op {
                Op::Conv(conv) => conv.groups == 1 && input == 0,
                Op::Norm(_) => true,
                _ => false,
            }
    }

    fn limit_units(&self, units: &Units, w: &AlignedBuf, g: &mut AlignedBuf) -> Result<(), Error> {
        update::limit_units(self.threads, units, w.as_slice(), g.as_mut_slice());
        Ok(())
    }

    fn update(
        &self,
        update: &Update,
        groups: &[ParamGroup],
        rates: &AlignedBuf,
        w: &mut AlignedBuf,
        g: &AlignedBuf,
        slots: &mut [&mut AlignedBuf],
    ) -> Result<bool, Error> {
        let slots: Vec<&mut [f32]> = slots.iter_mut().map(|slot| slot.as_mut_slice()).collect();
        let (w, g) = (w.as_mut_slice(), g.as_slice());
        Ok(update::update(self.threads, update, groups, rates.as_slice(), w, g, slots))
    }

    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut AlignedBuf,
    ) -> Result<(), Error> {
        let squares = |arena: &Arena<Self>| -> Vec<f64> {
            let buckets = arena.buckets.iter().zip(&norms.tensors);
            buckets.flat_map(|(x, tensors)| update::squares(self.threads, x.as_slice(), tensors)).collect()
        };
        let weights = if update.rule.adapts() { squares(weights) } else { Vec::new() };
        to.write(0, &norms.rates(update, &squares(gradients), &weights))
    }

    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        args: CrossEntropy<'_>,
        x: &AlignedBuf,
        dx: Option<&mut AlignedBuf>,
    ) -> Result<Option<LossSums>, Error> {
        loss::cross_entropy(desc, args, x.as_slice(), dx.map(AlignedBuf::as_mut_slice)).map(Some)
    }

    fn soft_loss(
        &self,
        desc: &TensorDesc,
        args: SoftLoss<'_>,
        x: &AlignedBuf,
        teacher: Option<(&TensorDesc, &AlignedBuf)>,
        dx: Option<&mut AlignedBuf>,
    ) -> Result<Option<LossSums>, Error> {
        let teacher = teacher.map(|(desc, scores)| (desc, scores.as_slice()));
        let dx = dx.map(AlignedBuf::as_mut_slice);
        loss::soft_loss(desc, args, x.as_slice(), teacher, dx).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceMemory;

    #[test]
    fn bf16_tensors_are_added_and_converted_to_f32() {
        let cpu = Cpu::in_emulated_bf16(2).unwrap();
        let desc = TensorDesc { n: 2, shape: Shape::image(3, 2, 1), block: 8, bf16: true };
        let of = |first: f32| {
            let mut buf = cpu.alloc(desc.words()).unwrap();
            for (i, half) in as_u16_mut(buf.as_mut_slice()).iter_mut().enumerate() {
                *half = bf16::round(first + i as f32);
            }
            buf
        };
        let (mut sum, one) = (of(0.0), of(0.5));
        cpu.add_tensors(&desc, &mut sum, &one).unwrap();
        let place = |n: usize, c: usize, p: usize| ((n * 2 + p) * 8 + c) as f32;
        let places = (0..2).flat_map(|n| (0..3).flat_map(move |c| (0..2).map(move |p| place(n, c, p))));
        assert_eq!(cpu.download(&desc, &sum).unwrap(), places.map(|at| 2.0 * at + 0.5).collect::<Vec<_>>());
    }
}
