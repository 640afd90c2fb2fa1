//! The reference backend: its memory, passes over flat arrays, the planning of operations, the loss and the optimizer's
//! passes.

use std::ops::Range;

use net::{Op, for_each_op};

use super::loss;
use crate::update::{ElementLoop, Units};
use crate::{
    Arena, Backend, Buffer, CrossEntropy, DeviceMemory, Error, LossSums, Norms, ParamGroup, PlanRequest, Planned, Slot,
    SoftLoss, TensorDesc, Update,
};

/// The backend with plain loops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl DeviceMemory for Reference {
    type Buf = HostBuf;
    type Format = usize;
    type Fusion = ();
    const LOOPS: &'static str = "loops";

    fn alloc(&self, elems: usize) -> Result<HostBuf, Error> {
        Ok(HostBuf(vec![0.0; elems]))
    }

    fn copy(&self, to: &mut HostBuf, from: &HostBuf) -> Result<(), Error> {
        let len = to.0.len();
        to.0.copy_from_slice(&from.0[..len]);
        Ok(())
    }

    fn zero(&self, to: &mut HostBuf) -> Result<(), Error> {
        to.0.fill(0.0);
        Ok(())
    }

    fn add(&self, to: &mut HostBuf, from: &HostBuf) -> Result<(), Error> {
        for (a, b) in to.0.iter_mut().zip(&from.0) {
            *a += b;
        }
        Ok(())
    }

    fn scale(&self, to: &mut HostBuf, factor: f32) -> Result<(), Error> {
        to.0.iter_mut().for_each(|a| *a *= factor);
        Ok(())
    }

    fn clamp(&self, x: &mut HostBuf, limit: f32) -> Result<(), Error> {
        x.0.iter_mut().for_each(|x| *x = x.clamp(-limit, limit));
        Ok(())
    }

    fn lerp(&self, to: &mut HostBuf, from: &HostBuf, weight: f32) -> Result<(), Error> {
        to.0.iter_mut().zip(&from.0).for_each(|(to, from)| *to += weight * (from - *to));
        Ok(())
    }
}

impl Arena<Reference> {
    pub(super) fn get(&self, slot: Slot) -> &[f32] {
        &self.buckets[slot.bucket].0[slot.range()]
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.buckets[slot.bucket].0[slot.range()]
    }
}

#[derive(Debug, Default)]
pub struct HostBuf(pub Vec<f32>);

impl Buffer for HostBuf {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn place(&self) -> usize {
        self.0.as_ptr() as usize
    }

    fn host(&self) -> Option<&[f32]> {
        Some(&self.0)
    }

    fn staged(&mut self) -> Result<&mut [f32], Error> {
        Ok(&mut self.0)
    }

    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error> {
        to.copy_from_slice(&self.0[first..][..to.len()]);
        Ok(())
    }

    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error> {
        self.0[first..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}

macro_rules! plan_op {
    ($($file:ident $name:ident,)*) => {
        fn plan_op(r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
            match r.op { $(Op::$name(op) => super::$file::plan(op, r),)* }
        }
    };
}
for_each_op!(plan_op);

impl Backend for Reference {
    fn describe(&self) -> String {
        "reference (plain loops, 1 thread)".into()
    }

    fn plan(&self, r: &PlanRequest<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error> {
        let x: Vec<TensorDesc> = r.x.iter().zip(r.shapes).map(|(x, shape)| x.with_shape(*shape)).collect();
        plan_op(&PlanRequest { x: &x, ..*r })
    }

    fn upload(&self, images: &[f32], to: &mut HostBuf) -> Result<(), Error> {
        to.0[..images.len()].copy_from_slice(images);
        Ok(())
    }

    fn download(&self, desc: &TensorDesc, from: &HostBuf) -> Result<Vec<f32>, Error> {
        Ok(from.0[..desc.elems()].to_vec())
    }

    fn limit_units(&self, units: &Units, w: &HostBuf, g: &mut HostBuf) -> Result<(), Error> {
        for (number, tensor) in units.tensors.iter().enumerate() {
            units.limit(number, &w.0[tensor.range.clone()], &mut g.0[tensor.range.clone()]);
        }
        Ok(())
    }

    fn update(
        &self,
        update: &Update,
        groups: &[ParamGroup],
        rates: &HostBuf,
        w: &mut HostBuf,
        g: &HostBuf,
        slots: &mut [&mut HostBuf],
    ) -> Result<bool, Error> {
        let mut finite = true;
        for group in groups {
            let elements = Elements { range: group.range.clone(), w, g, slots: &mut *slots };
            finite &= update.rule.run(group.step(update, &rates.0), elements);
        }
        Ok(finite)
    }

    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut HostBuf,
    ) -> Result<(), Error> {
        let weights = if update.rule.adapts() { squares(norms, weights) } else { Vec::new() };
        to.write(0, &norms.rates(update, &squares(norms, gradients), &weights))
    }

    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        args: CrossEntropy<'_>,
        x: &HostBuf,
        dx: Option<&mut HostBuf>,
    ) -> Result<Option<LossSums>, Error> {
        loss::cross_entropy(desc, args, &x.0, dx.map(|d| d.0.as_mut_slice())).map(Some)
    }

    fn soft_loss(
        &self,
        desc: &TensorDesc,
        args: SoftLoss<'_>,
        x: &HostBuf,
        teacher: Option<(&TensorDesc, &HostBuf)>,
        dx: Option<&mut HostBuf>,
    ) -> Result<Option<LossSums>, Error> {
        let (teacher, dx) = (teacher.map(|(_, scores)| scores.0.as_slice()), dx.map(|d| d.0.as_mut_slice()));
        loss::soft_loss(desc, args, &x.0, teacher, dx).map(Some)
    }
}

/// Returns each tensor's sum of squares.
fn squares(norms: &Norms, arena: &Arena<Reference>) -> Vec<f64> {
    let square = |&x: &f32| f64::from(x) * f64::from(x);
    let buckets = arena.buckets.iter().zip(&norms.tensors);
    buckets
        .flat_map(|(x, tensors)| tensors.iter().map(move |t| x.0[t.range.clone()].iter().map(square).sum()))
        .collect()
}

/// The elements of a parameter group. All numbers are f64 and are rounded once when they are stored.
struct Elements<'a, 'b> {
    range: Range<usize>,
    w: &'a mut HostBuf,
    g: &'a HostBuf,
    slots: &'a mut [&'b mut HostBuf],
}

impl ElementLoop<f64> for Elements<'_, '_> {
    fn for_each_element<const S: usize>(self, update_element: impl Fn(f64, f64, [&mut f64; S]) -> f64 + Copy) -> bool {
        let mut finite = true;
        for i in self.range {
            let mut own: [f64; S] = std::array::from_fn(|slot| f64::from(self.slots[slot].0[i]));
            self.w.0[i] = update_element(f64::from(self.w.0[i]), f64::from(self.g.0[i]), own.each_mut()) as f32;
            self.slots.iter_mut().zip(own).for_each(|(slot, value)| slot.0[i] = value as f32);
            finite &= self.w.0[i].is_finite();
        }
        finite
    }
}
