//! The plan of each operation, the loss and the optimizer's passes of the reference backend.

use net::{Op, for_each_op};

use super::device::Reference;
use super::host_buf::HostBuf;
use super::{loss, soft_loss, update};
use crate::update::Units;
use crate::{
    Arena, Backend, Buffer, CrossEntropy, Error, LossSums, Norms, ParamGroup, PlanRequest, Planned, SoftLoss,
    TensorDesc, Update,
};

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
        let mut slots: Vec<&mut [f32]> = slots.iter_mut().map(|slot| slot.0.as_mut_slice()).collect();
        Ok(update::update(update, groups, &rates.0, &mut w.0, &g.0, &mut slots))
    }

    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut HostBuf,
    ) -> Result<(), Error> {
        let weights = if update.rule.adapts() { update::squares(norms, weights) } else { Vec::new() };
        to.write(0, &norms.rates(update, &update::squares(norms, gradients), &weights))
    }

    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &HostBuf,
        dx: Option<&mut HostBuf>,
    ) -> Result<Option<LossSums>, Error> {
        loss::cross_entropy(desc, ask, &x.0, dx.map(|d| d.0.as_mut_slice())).map(Some)
    }

    fn soft_loss(
        &self,
        desc: &TensorDesc,
        ask: SoftLoss<'_>,
        x: &HostBuf,
        teacher: Option<&HostBuf>,
        dx: Option<&mut HostBuf>,
    ) -> Result<Option<LossSums>, Error> {
        let (teacher, dx) = (teacher.map(|t| t.0.as_slice()), dx.map(|d| d.0.as_mut_slice()));
        soft_loss::soft_loss(desc, ask, &x.0, teacher, dx).map(Some)
    }
}
