//! The plan of each operation, the loss and the optimizer's passes of the reference backend.

use super::device::Reference;
use super::host_buf::HostBuf;
use super::{conv, dropout, elementwise, linear, loss, lrn, norm, pool, shortcut, update};
use crate::backend::op::Op;
use crate::backend::{
    Arena, Backend, Buffer, CrossEntropy, Error, LossSums, Norms, Planned, Request, ParamGroup, TensorDesc, Update,
};

impl Backend for Reference {
    fn describe(&self) -> String {
        "reference (plain loops, 1 thread)".into()
    }

    fn plan(&self, r: &Request<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error> {
        let x = r.x[0].with_shape(r.shapes[0]);
        let shape = r.op.output(r.shapes).map_err(|why| Error::Unsupported { op: r.name.into(), why })?;
        let y = TensorDesc::plain(x.n, shape);
        Ok(match r.op {
            Op::Conv(op) => Box::new(conv::Plan { op: op.clone(), x, y }),
            Op::Linear(op) => Box::new(linear::Plan { op: op.clone(), x, y }),
            Op::Norm(op) => Box::new(norm::Plan::new(op.clone(), x)),
            Op::Pool(op) => Box::new(pool::Plan { op: op.clone(), x, y }),
            Op::Lrn(op) => Box::new(lrn::Plan { op: *op, x }),
            Op::Shortcut(op) => Box::new(shortcut::Plan { op: *op, x, y }),
            Op::Relu => Box::new(elementwise::Plan { kind: elementwise::Kind::Relu, y }),
            Op::Tanh => Box::new(elementwise::Plan { kind: elementwise::Kind::Tanh, y }),
            Op::Flatten => Box::new(elementwise::Plan { kind: elementwise::Kind::Copy, y }),
            Op::Add => Box::new(elementwise::Plan { kind: elementwise::Kind::Add, y }),
            Op::Dropout(p) => Box::new(dropout::Plan { p: *p, index: r.index, x, kept: Vec::new() }),
        })
    }

    fn upload(&self, images: &[f32], to: &mut HostBuf) -> Result<(), Error> {
        to.0[..images.len()].copy_from_slice(images);
        Ok(())
    }

    fn download(&self, desc: &TensorDesc, from: &HostBuf) -> Result<Vec<f32>, Error> {
        Ok(from.0[..desc.elems()].to_vec())
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
}
