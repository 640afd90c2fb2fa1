//! Convolutions: in tiles where the processor has them for bf16, which read and write images channels last; else Winograd's where it is
//! chosen, else oneDNN's, with weights spread among zeros where it has no fast one for them as they are, all in blocks of channels. Where
//! all that is left are its plain loops, because of the padding maybe, images are copied into frames of zeros.

use net::{Conv, Shape};

use super::choices::{Kernels, Sizes};
use super::device::Cpu;
use super::framed::frame;
use super::layout::Format;
use super::number::Bf16;
use super::{affine, relaid, spread, winograd};
use crate::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, op: &Conv, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (plan, is_slow) = plan_without_frame(cpu, op, r, true)?;
    let framed = if is_slow { plan_in_frame(cpu, op, r, |op, r| plan_without_frame(cpu, op, r, false))? } else { None };
    Ok(framed.unwrap_or(plan))
}

/// Plans the op over images as they are; `on_grid`: perhaps by Winograd's kernels. Not so in a frame: weights in plain order, as these
/// kernels take them, tell a smaller batch there that they are spread.
fn plan_without_frame(cpu: &Cpu, op: &Conv, r: &PlanRequest<'_, Cpu>, on_grid: bool) -> Result<Judged, Error> {
    // a smaller batch is computed as the largest is, whose weights lie in plain order where they are spread
    let spread = matches!(r.formats.and_then(|formats| formats.first()), Some(Format::Plain(_)));
    if cpu.channels_last && op.groups == 1 && !spread {
        // of pixels alone, without a window, those between the steps are not read
        let (step, stride) = match op.kernel == [1, 1] && op.pads == [0; 4] {
            true => (op.stride, [1, 1]),
            false => ([1, 1], op.stride),
        };
        let dense = Conv { stride, ..op.clone() };
        let tiles = relaid::plan(cpu, r, &[relaid::thinned(&r.x[0], step)], step, |r| {
            affine::Plan::in_tiles(cpu, r, &dense).map(|plan| Box::new(plan) as _)
        });
        if let Ok(plan) = tiles {
            return Ok((plan, false));
        }
    }
    let x = relaid::blocked(cpu, &r.x[0]);
    if x.bf16 && !spread && cpu.bf16 == Some(Bf16::Halves) {
        let narrow =
            relaid::plan(cpu, r, &[x], [1, 1], |r| affine::Plan::conv(cpu, r, op).map(|plan| Box::new(plan) as _));
        if let Ok(plan) = narrow {
            return Ok((plan, false));
        }
    }
    let mut is_slow = false;
    let plan = relaid::plan(cpu, r, &[x.in_f32()], [1, 1], |r| {
        let (plan, slow) = in_blocks(cpu, op, r, (spread, on_grid))?;
        is_slow = slow;
        Ok(plan)
    })?;
    Ok((plan, is_slow))
}

/// With `spread` as the largest batch's weights lie.
fn in_blocks(cpu: &Cpu, op: &Conv, r: &PlanRequest<'_, Cpu>, (spread, on_grid): (bool, bool)) -> Result<Judged, Error> {
    let on_grid = on_grid && winograd::fits(cpu, r, op);
    if on_grid
        && chosen(cpu, r, op) == Kernels::Winograd
        && let Some(plan) = winograd::plan(cpu, r, op)
    {
        return Ok((plan?, false));
    }
    let direct = affine::Plan::conv(cpu, r, op)?;
    if on_grid
        && needs_winograd(r, &direct)
        && let Some(plan) = winograd::plan(cpu, r, op)
    {
        return Ok((plan?, false));
    }
    let may_spread = spread || r.formats.is_none() && direct.is_slow() && (op.groups > 1 || op.dilation != [1, 1]);
    let spread = if may_spread { spread::plan(cpu, r, op)? } else { None };
    let is_slow = spread.is_none() && direct.is_slow();
    Ok((spread.unwrap_or_else(|| Box::new(direct)), is_slow))
}

/// True if oneDNN has only plain loops for a convolution, so that Winograd's kernels compute it whatever the table or the rule says. A
/// smaller batch then finds weights in plain order.
pub(super) fn needs_winograd(r: &PlanRequest<'_, Cpu>, direct: &affine::Plan) -> bool {
    direct.is_slow() && r.formats.is_none()
}

/// Who computes a convolution for which there are Winograd's kernels: as the processor's table says; where it has no such row, these, but
/// on small planes and, at stride 2, between few channels. They also compute what [oneDNN has only plain loops for](needs_winograd).
pub(super) fn chosen(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Kernels {
    let by = |winograd: bool| if winograd { Kernels::Winograd } else { Kernels::OneDnn };
    // smaller batches and images are computed as the largest are, whose weights lie in plain order by Winograd's
    if let Some(format) = r.formats.and_then(|formats| formats.first()) {
        return by(matches!(format, Format::Plain(_)));
    }
    let shape = r.x[0].shape;
    let rule = || match op.stride {
        [1, 1] => shape.plane() >= 16,
        // a quarter of the outputs, and transforms that cost more beside the products of few channels
        _ => shape.plane() >= 64 && shape.c.min(op.out_channels) >= 64 && shape.c.max(op.out_channels) >= 128,
    };
    cpu.table.borrow().choice(&Sizes::of(shape, op)).unwrap_or_else(|| by(rule()))
}

/// A plan, and whether a pass takes oneDNN's plain loops.
pub(super) type Judged = (Box<dyn Planned<Cpu>>, bool);

/// Plans a convolution as `of` plans one without padding, of images that stand in frames of zeros: oneDNN has nothing but plain loops where
/// a kernel lies beside the image with all its cells. None where it has nothing else without padding either.
pub(super) fn plan_in_frame(
    cpu: &Cpu,
    op: &Conv,
    r: &PlanRequest<'_, Cpu>,
    of: impl FnOnce(&Conv, &PlanRequest<'_, Cpu>) -> Result<Judged, Error>,
) -> Result<Option<Box<dyn Planned<Cpu>>>, Error> {
    if op.pads == [0; 4] {
        return Ok(None);
    }
    let [top, left, height, width] = frame(op, r.x[0].shape, r.output()?);
    let framed = r.x[0].with_shape(Shape::image(r.x[0].shape.c, height, width));
    // the operation before writes no frame; that behind reads the output as it is
    let request = PlanRequest { x: &[framed], before: None, ..*r };
    let (inner, is_slow) = of(&op.clone().pads([0; 4]), &request)?;
    if is_slow { Ok(None) } else { relaid::in_frame(cpu, r, inner, &framed, [top, left]).map(Some) }
}
