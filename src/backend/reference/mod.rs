//! The oracle: every operation in plain loops over plain NCHW, f32 values with f64 accumulators. Slow, short, easy to check.

mod conv;
pub(super) mod dropout;
mod elementwise;
mod linear;
mod loss;
mod lrn;
mod norm;
mod pool;
mod shortcut;
mod update;

use super::op::Op;
use super::{
    Arena, Backend, Buffer, CrossEntropy, Error, LossSums, Norms, ParamGroup, Planned, Request, Slot, TensorDesc,
    Update,
};

/// The plain-loop backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// Ordinary host memory.
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

impl Arena<Reference> {
    /// The elements of a slot.
    fn get(&self, slot: Slot) -> &[f32] {
        &self.chunks[slot.chunk].0[slot.range()]
    }

    /// The elements of a slot for writing.
    fn get_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.chunks[slot.chunk].0[slot.range()]
    }
}

impl Backend for Reference {
    type Buf = HostBuf;
    /// Elements of the plain tensor.
    type Format = usize;

    fn describe(&self) -> String {
        "reference (plain loops, 1 thread)".into()
    }

    fn alloc(&self, elems: usize) -> Result<HostBuf, Error> {
        Ok(HostBuf(vec![0.0; elems]))
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

    fn format_elems(&self, format: &usize) -> usize {
        *format
    }

    fn pack(_: &usize, plain: &[f32], packed: &mut [f32]) -> Result<(), Error> {
        packed.copy_from_slice(plain);
        Ok(())
    }

    fn unpack(_: &usize, packed: &[f32], plain: &mut [f32]) -> Result<(), Error> {
        plain.copy_from_slice(packed);
        Ok(())
    }

    fn upload(&self, images: &[f32], to: &mut HostBuf) -> Result<(), Error> {
        to.0[..images.len()].copy_from_slice(images);
        Ok(())
    }

    fn download(&self, desc: &TensorDesc, from: &HostBuf) -> Result<Vec<f32>, Error> {
        Ok(from.0[..desc.elems()].to_vec())
    }

    fn copy(&self, to: &mut HostBuf, from: &HostBuf) -> Result<(), Error> {
        to.0.copy_from_slice(&from.0);
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

    fn clamp(&self, x: &mut HostBuf, limit: f32) -> Result<(), Error> {
        x.0.iter_mut().for_each(|x| *x = x.clamp(-limit, limit));
        Ok(())
    }

    fn lerp(&self, to: &mut HostBuf, from: &HostBuf, weight: f32) -> Result<(), Error> {
        to.0.iter_mut().zip(&from.0).for_each(|(to, from)| *to += weight * (from - *to));
        Ok(())
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

/// Names every reference plan alike.
fn loops() -> String {
    "loops".into()
}
