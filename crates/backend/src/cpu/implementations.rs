//! The ways in which the CPU can compute an operation, to be measured.

use net::{Conv, Op};

use super::choices::{Kernels, Row, Sizes, merged};
use super::device::Cpu;
use super::{affine, conv, linear, winograd};
use crate::{Backend, Error, Implementation, Implementations, PlanRequest};

impl Implementations<Self> for Cpu {
    fn all(&self, r: &PlanRequest<'_, Self>) -> Result<Vec<Implementation<Self>>, Error> {
        if let Op::Linear(op) = r.op
            && let Some(own) = linear::in_panels(self, r, op)?
        {
            let own = Implementation { name: "panels", plan: Box::new(own) };
            return Ok(vec![own, Implementation { name: "onednn", plan: linear::by_onednn(self, r, op)? }]);
        }
        let Some(op) = choosable(self, r) else {
            return Ok(vec![Implementation { name: "", plan: self.plan(r)? }]);
        };
        let direct = affine::Plan::conv(self, r, op)?;
        let taken = if conv::gives_way(r, &direct) { Kernels::Winograd } else { conv::chosen(self, r, op) };
        let mut all = vec![Implementation { name: Kernels::OneDnn.name(), plan: Box::new(direct) }];
        if let Some(plan) = winograd::plan(self, r, op) {
            all.push(Implementation { name: Kernels::Winograd.name(), plan: plan? });
        }
        all.sort_by_key(|one| one.name != taken.name());
        Ok(all)
    }

    fn row(&self, r: &PlanRequest<'_, Self>, by: &str, ratios: &[f64]) -> Option<String> {
        let (op, by) = (choosable(self, r)?, Kernels::named(by)?);
        // rows are for padding of half the kernel, and hold for other paddings, too
        if op.kernel[0] != 2 * op.pads[0] + 1 {
            return None;
        }
        Some(Row { sizes: Sizes::of(r.x[0].shape, op), by, ratios: ratios.to_vec() }.to_string())
    }

    fn table(&self, before: &str, taken: &str, batches: &[usize], rows: &[String]) -> Result<String, String> {
        merged(before, taken, batches, rows)
    }
}

/// The convolution, if it is one that Winograd's kernels are for.
fn choosable<'a>(cpu: &Cpu, r: &PlanRequest<'a, Cpu>) -> Option<&'a Conv> {
    match r.op {
        Op::Conv(op) if winograd::fits(cpu, r, op) => Some(op),
        _ => None,
    }
}
