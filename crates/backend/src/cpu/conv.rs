//! Chooses the implementation of a convolution, in this order:
//!
//! 1. oneDNN with tile instructions (AMX), if the processor has them and the precision is bf16. It reads and writes
//!    images channels last. All other implementations use channel blocks.
//! 2. Winograd kernels, if they are chosen for the sizes.
//! 3. oneDNN. If it has no fast primitive for the original weights, `spread` merges groups, makes the kernel dense, or
//!    adds input channels.
//! 4. If oneDNN has only plain loops for the network's images, because they have many bands: the same choices on copies
//!    of the images in channel blocks.
//! 5. If oneDNN has only plain loops, perhaps because of the padding: the same choices for a convolution without
//!    padding, on images that are copied into frames of zeros.

use net::{Conv, Shape};

use super::choices::{Kernels, Sizes};
use super::device::Cpu;
use super::framed::frame;
use super::layout::Format;
use super::number::Bf16;
use super::{affine, relayout, spread, winograd};
use crate::{Error, PlanRequest, Planned, TensorDesc};

pub(super) fn plan(cpu: &Cpu, op: &Conv, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (plan, is_slow) = plan_without_frame(cpu, op, r, true)?;
    let framed = if is_slow { plan_in_frame(cpu, op, r, |op, r| plan_without_frame(cpu, op, r, false))? } else { None };
    Ok(framed.unwrap_or(plan))
}

/// Plans the operation without a frame. Winograd kernels cannot be used inside a frame, because their weights are in
/// plain order. From this order, a plan for a smaller batch would conclude that [`spread`] computes the convolution.
fn plan_without_frame(
    cpu: &Cpu,
    op: &Conv,
    r: &PlanRequest<'_, Cpu>,
    allow_winograd: bool,
) -> Result<RatedPlan, Error> {
    // If the weights are in plain order, the plan for the largest batch uses `spread`. A smaller batch must do the
    // same.
    let spread = matches!(r.formats.and_then(|formats| formats.first()), Some(Format::Plain(_)));
    if cpu.channels_last && op.groups == 1 && !spread {
        // A 1x1 kernel without padding reads only every `stride`-th pixel. Only these pixels are copied, for a
        // convolution with stride 1.
        let (step, stride) = match op.kernel == [1, 1] && op.pads == [0; 4] {
            true => (op.stride, [1, 1]),
            false => ([1, 1], op.stride),
        };
        let dense = Conv { stride, ..op.clone() };
        let tiles = relayout::plan(cpu, r, &[relayout::strided_channels_last(&r.x[0], step)], step, |r| {
            affine::Plan::in_tiles(cpu, r, &dense).map(|plan| Box::new(plan) as _)
        });
        if let Ok(plan) = tiles {
            return Ok((plan, false));
        }
    }
    let x = relayout::blocked(cpu, &r.x[0]);
    if x.bf16 && !spread && cpu.bf16 == Some(Bf16::Native) {
        let bf16_plan =
            relayout::plan(cpu, r, &[x], [1, 1], |r| affine::Plan::conv(cpu, r, op).map(|plan| Box::new(plan) as _));
        if let Ok(plan) = bf16_plan {
            return Ok((plan, false));
        }
    }
    let in_f32 = |x: TensorDesc| -> Result<RatedPlan, Error> {
        let mut is_slow = false;
        let plan = relayout::plan(cpu, r, &[x], [1, 1], |r| {
            let (plan, slow) = in_blocks(cpu, op, r, (spread, allow_winograd))?;
            is_slow = slow;
            Ok(plan)
        })?;
        Ok((plan, is_slow))
    };
    let (plan, is_slow) = in_f32(x.in_f32())?;
    // oneDNN 2.6 is fast for images in plain order only with fewer channels than a block.
    if is_slow && x.block == 1 {
        return in_f32(TensorDesc { block: cpu.block, ..x.in_f32() });
    }
    Ok((plan, is_slow))
}

/// Plans the operation for channel blocks in f32. The flag `spread` is true if the plan for the largest batch uses
/// [`spread`].
fn in_blocks(
    cpu: &Cpu,
    op: &Conv,
    r: &PlanRequest<'_, Cpu>,
    (spread, allow_winograd): (bool, bool),
) -> Result<RatedPlan, Error> {
    let allow_winograd = allow_winograd && winograd::fits(cpu, r, op);
    if allow_winograd
        && choose_kernels(cpu, r, op) == Kernels::Winograd
        && let Some(plan) = winograd::plan(cpu, r, op)
    {
        return Ok((plan?, false));
    }
    let direct = affine::Plan::conv(cpu, r, op)?;
    if allow_winograd
        && needs_winograd(r, &direct)
        && let Some(plan) = winograd::plan(cpu, r, op)
    {
        return Ok((plan?, false));
    }
    let may_spread = spread || r.formats.is_none() && direct.is_slow();
    let spread = if may_spread { spread::plan(cpu, r, op)? } else { None };
    let is_slow = spread.is_none() && direct.is_slow();
    Ok((spread.unwrap_or_else(|| Box::new(direct)), is_slow))
}

/// Returns true if oneDNN has only plain loops for a convolution. Then the Winograd kernels compute it, regardless of
/// table and rule. A plan for a smaller batch finds `formats` set and recognises the choice by weights in plain order.
pub(super) fn needs_winograd(r: &PlanRequest<'_, Cpu>, direct: &affine::Plan) -> bool {
    direct.is_slow() && r.formats.is_none()
}

/// Chooses the kernels for a convolution that the Winograd kernels support. The processor's table decides. Without a
/// row for the sizes, the Winograd kernels are used except for small planes and, at stride 2, for few channels. They
/// also compute convolutions for which [oneDNN has only plain loops](needs_winograd).
pub(super) fn choose_kernels(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Kernels {
    let by = |winograd: bool| if winograd { Kernels::Winograd } else { Kernels::OneDnn };
    // A plan for a smaller batch or image uses the same kernels as the plan for the largest: Winograd if its weights
    // are in plain order.
    if let Some(format) = r.formats.and_then(|formats| formats.first()) {
        return by(matches!(format, Format::Plain(_)));
    }
    let shape = r.x[0].shape;
    let rule = || match op.stride {
        [1, 1] => shape.plane() >= 16,
        // A convolution with stride 2 has only a quarter of the outputs. With few channels, the transforms cost too
        // much compared with the products.
        _ => shape.plane() >= 64 && shape.c.min(op.out_channels) >= 64 && shape.c.max(op.out_channels) >= 128,
    };
    cpu.table.borrow().choice(&Sizes::of(shape, op)).unwrap_or_else(|| by(rule()))
}

/// A plan, and true if any pass uses oneDNN's plain loops.
pub(super) type RatedPlan = (Box<dyn Planned<Cpu>>, bool);

/// Plans the convolution without its padding, on images that are copied into frames of zeros. `plan_inner` makes this
/// plan. A frame helps if a kernel can be entirely outside the image, because oneDNN then has only plain loops. Returns
/// `None` if there is no padding, or if oneDNN has only plain loops without padding too.
pub(super) fn plan_in_frame(
    cpu: &Cpu,
    op: &Conv,
    r: &PlanRequest<'_, Cpu>,
    plan_inner: impl FnOnce(&Conv, &PlanRequest<'_, Cpu>) -> Result<RatedPlan, Error>,
) -> Result<Option<Box<dyn Planned<Cpu>>>, Error> {
    if op.pads == [0; 4] {
        return Ok(None);
    }
    let [top, left, height, width] = frame(op, r.x[0].shape, r.output()?);
    let framed = r.x[0].with_shape(Shape::image(r.x[0].shape.c, height, width));
    // The previous operation cannot write into a frame, so there is no fusion with it. The next operation reads the
    // output as usual.
    let request = PlanRequest { x: &[framed], input_fusion: None, ..*r };
    let (inner, is_slow) = plan_inner(&op.clone().pads([0; 4]), &request)?;
    if is_slow { Ok(None) } else { relayout::in_frame(cpu, r, inner, &framed, [top, left]).map(Some) }
}

#[cfg(test)]
mod tests {
    use net::Op;

    use super::*;
    use crate::Backend;

    /// Returns the names of the code that computes a convolution of 16 channels in blocks.
    fn implementation(cpu: &Cpu, conv: Conv) -> String {
        let op = Op::Conv(conv);
        let x = [TensorDesc { block: cpu.block, ..TensorDesc::plain(2, Shape::image(16, 32, 32)) }];
        let shapes = [x[0].shape];
        cpu.plan(&PlanRequest::alone("conv", &op, &shapes, &x)).unwrap().implementation()
    }

    /// With padding 4, oneDNN 2.6 has no fast weight gradient for 5x5 kernels. In a frame it has, also in bf16. For 16x16
    /// kernels it has none at all.
    #[test]
    fn own_weight_gradient_is_used_only_if_onednn_has_no_fast_one() {
        let wide = Conv::new(32, 5).pad(4);
        let names = implementation(&Cpu::new(1).unwrap(), wide.clone());
        // oneDNN 2.6 has no fast convolution for ARM without the Compute Library
        let fast = !names.starts_with("ref:");
        assert!(fast || cfg!(target_arch = "aarch64"), "{names}");
        assert_eq!(names.contains(" own "), !fast, "{names}");
        assert!(!fast || !names.contains("ref"), "{names}");
        let names = implementation(&Cpu::in_emulated_bf16(1).unwrap(), wide);
        assert_eq!(names.starts_with("bf16:"), fast, "{names}");
        let names = implementation(&Cpu::new(1).unwrap(), Conv::new(32, 16).stride(16));
        assert!(names.contains(" own "), "{names}");
    }
}
