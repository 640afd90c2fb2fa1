//! The optimizer's passes over a chunk, and those that prepare them: sums of squares, limits, the end of loss scaling.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use super::kernels::Arg::{At, F32, U32, U64};
use super::memory::{CudaBuf, Inlet, Pinned};
use super::pass::GROWTH_INTERVAL;
use super::settings::Precision;
use super::shared::Shared;
use crate::backend::{Buffer, Error, Rule, Stretch, Update};

/// Elements that a block takes at once.
const PIECE: usize = 4096;

/// Numbers of a step at most, see kernels/update.cu.
const NUMBERS: usize = 10;

/// Lists of pieces and numbers that are on the card already.
#[derive(Default)]
pub struct Lists {
    /// By the parameters' address: the stretches, and their pieces.
    updates: RefCell<HashMap<u64, (Vec<Stretch>, Pieces)>>,
    numbers: RefCell<Option<Inlet<f32>>>,
    squares: RefCell<Option<Squares>>,
}

/// Pieces as the kernels read them: six words each.
struct Pieces {
    list: Inlet<u32>,
    count: usize,
}

/// Work space of sums of squares.
struct Squares {
    list: Inlet<u32>,
    first: Inlet<u32>,
    parts: CudaBuf,
    sums: Pinned<f64>,
}

/// One stretch cut into pieces.
fn cut(range: &Range<usize>, decay: f32, trust: f32, list: &mut Vec<u32>) {
    for from in range.clone().step_by(PIECE) {
        let len = (range.end - from).min(PIECE);
        let from = from as u64;
        list.extend([from as u32, (from >> 32) as u32, len as u32, decay.to_bits(), trust.to_bits(), 0]);
    }
}

fn pieces_of(shared: &Shared, stretches: &[Stretch], known: Option<Pieces>) -> Result<Pieces, Error> {
    let mut list = Vec::new();
    stretches.iter().for_each(|s| cut(&s.range, s.weight_decay, s.trust, &mut list));
    let mut inlet = match known {
        Some(pieces) if pieces.list.room() >= list.len() => pieces.list,
        _ => shared.inlet(list.len(), "the optimizer's stretches")?,
    };
    inlet.write(&list, shared.stream())?;
    Ok(Pieces { list: inlet, count: list.len() / 6 })
}

/// The kernel of a rule, and its numbers from the third on.
fn kernel(rule: &Rule) -> (&'static str, Vec<f64>) {
    let flag = |on: bool| f64::from(u8::from(on));
    match *rule {
        Rule::Sgd { momentum, nesterov } => ("update_sgd", vec![momentum, flag(nesterov)]),
        Rule::Lars { momentum } => ("update_lars", vec![momentum]),
        Rule::Adam { beta1, beta2, eps, correction1, correction2, decoupled } => {
            let numbers = vec![beta1, 1.0 - beta1, beta2, 1.0 - beta2, eps, correction1, correction2, flag(decoupled)];
            ("update_adam", numbers)
        }
        Rule::RmsPropTorch(r) | Rule::RmsPropTf(r) => {
            let tensorflow = flag(matches!(rule, Rule::RmsPropTf(_)));
            ("update_rmsprop", vec![r.alpha, 1.0 - r.alpha, r.eps, r.momentum, flag(r.centered), tensorflow])
        }
    }
}

/// One optimizer step over the stretches of a chunk; whether all parameters are finite comes with the next sums.
pub(super) fn update(
    shared: &Shared,
    u: &Update,
    stretches: &[Stretch],
    w: &CudaBuf,
    g: &CudaBuf,
    slots: &[&mut CudaBuf],
) -> Result<(), Error> {
    let end = stretches.iter().map(|s| s.range.end).max().unwrap_or(0);
    [w, g].into_iter().chain(slots.iter().map(|s| &**s)).try_for_each(|b| b.check(0, end))?;
    if slots.len() < u.rule.slots() {
        let (expected, got) = (format!("{} slots", u.rule.slots()), slots.len().to_string());
        return Err(Error::Size { op: "an optimizer step".into(), expected, got });
    }
    if end == 0 {
        return Ok(());
    }
    shared.start()?;
    let (name, own) = kernel(&u.rule);
    let mut numbers = vec![u.lr as f32, u.gradient_scale];
    numbers.extend(own.iter().map(|v| *v as f32));
    let numbers = write_numbers(shared, numbers)?;
    let mut known = shared.lists.updates.borrow_mut();
    let (old, pieces) = known.remove(&w.address()).unzip();
    let pieces = match pieces {
        Some(pieces) if old.as_deref() == Some(stretches) => pieces,
        other => pieces_of(shared, stretches, other)?,
    };
    let blocks = shared.blocks.borrow();
    let slot = |i: usize| At(slots.get(i).map_or(0, |s| s.address()));
    let skip = At(blocks.scale_state.at(1)?);
    let list =
        [At(pieces.list.address()), U32(pieces.count as u32), At(numbers), skip, At(w.address()), At(g.address())];
    let args: Vec<_> = list.into_iter().chain([slot(0), slot(1), slot(2), At(blocks.not_finite.address())]).collect();
    // SAFETY: parameters, gradients and as many slots as the rule has hold all stretches, checked above.
    unsafe { shared.launch(name, shared.grid(pieces.count * super::kernels::THREADS as usize), &args)? };
    known.insert(w.address(), (stretches.to_vec(), pieces));
    Ok(())
}

/// The step's numbers on the card; the chunks of a step have the same.
fn write_numbers(shared: &Shared, mut numbers: Vec<f32>) -> Result<u64, Error> {
    numbers.resize(NUMBERS, 0.0);
    let mut kept = shared.lists.numbers.borrow_mut();
    let mut inlet = match kept.take() {
        Some(inlet) => inlet,
        None => shared.inlet(NUMBERS, "the optimizer's numbers")?,
    };
    if inlet.values() != numbers {
        inlet.write(&numbers, shared.stream())?;
    }
    Ok(kept.insert(inlet).address())
}

/// Sum of squares of each range.
pub(super) fn squares(shared: &Shared, x: &CudaBuf, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    x.check(0, ranges.iter().map(|r| r.end).max().unwrap_or(0))?;
    let (mut list, mut first) = (Vec::new(), vec![0u32]);
    for range in ranges {
        cut(range, 0.0, 0.0, &mut list);
        first.push((list.len() / 6) as u32);
    }
    let count = list.len() / 6;
    shared.start()?;
    let mut kept = shared.lists.squares.borrow_mut();
    let fits = |s: &Squares| s.list.room() >= list.len() && s.first.room() >= first.len();
    let mut room = match kept.take().filter(fits) {
        Some(room) => room,
        None => Squares {
            list: shared.inlet(list.len(), "sums of squares")?,
            first: shared.inlet(first.len(), "sums of squares")?,
            parts: shared.alloc(2 * count, "sums of squares")?,
            sums: shared.pinned(ranges.len(), "sums of squares")?,
        },
    };
    if room.list.values()[..list.len()] != list {
        room.list.write(&list, shared.stream())?;
    }
    if room.first.values()[..first.len()] != first {
        room.first.write(&first, shared.stream())?;
    }
    let (parts, sums) = (At(room.parts.address()), At(room.sums.address()));
    let pieces = [At(x.address()), At(room.list.address()), U32(count as u32), parts];
    // SAFETY: x holds all ranges (checked), the rest was made for as many pieces and ranges.
    unsafe {
        shared.launch("squares_of_pieces", shared.grid(count * super::kernels::THREADS as usize), &pieces)?;
        let args = [parts, At(room.first.address()), U32(ranges.len() as u32), sums];
        shared.launch("sums_of_ranges", shared.grid(ranges.len()), &args)?;
    }
    shared.settle()?;
    let sums = room.sums.as_slice()[..ranges.len()].to_vec();
    *kept = Some(room);
    Ok(sums)
}

/// Under f16: takes the loss's scale out of the gradients, and settles whether they are fit for a step and what the next scale is.
pub(super) fn inspect(shared: &Shared, gradients: &[CudaBuf]) -> Result<(), Error> {
    if shared.settings.precision != Precision::F16 {
        return Ok(());
    }
    let blocks = shared.blocks.borrow();
    let [scale, state] = [&blocks.scale, &blocks.scale_state].map(|b| At(b.address()));
    let seen = At(blocks.scale_seen.address());
    let chunks = || gradients.iter().filter(|g| !g.is_empty());
    // SAFETY: every chunk is as long as it says; the rest are this backend's own blocks.
    unsafe {
        for g in chunks() {
            shared.launch("scale_found", shared.grid(g.len()), &[At(g.address()), U64(g.len() as u64), state])?;
        }
        shared.launch("scale_settle", (1, 1), &[scale, state, U32(GROWTH_INTERVAL), seen])?;
        for g in chunks() {
            shared.launch("scale_undo", shared.grid(g.len()), &[At(g.address()), scale, U64(g.len() as u64)])?;
        }
    }
    Ok(())
}

/// `to += from`
pub(super) fn add(shared: &Shared, to: &CudaBuf, from: &CudaBuf) -> Result<(), Error> {
    let n = to.len().min(from.len());
    // SAFETY: both hold n elements.
    unsafe { shared.launch("arena_add", shared.grid(n), &[At(to.address()), At(from.address()), U64(n as u64)]) }
}

/// `to *= factor`
pub(super) fn scale(shared: &Shared, to: &CudaBuf, factor: f32) -> Result<(), Error> {
    // SAFETY: it is as long as it says.
    unsafe {
        shared.launch("arena_scale", shared.grid(to.len()), &[At(to.address()), F32(factor), U64(to.len() as u64)])
    }
}

/// Into [-limit, limit].
pub(super) fn clamp(shared: &Shared, to: &CudaBuf, limit: f32) -> Result<(), Error> {
    // SAFETY: it is as long as it says.
    unsafe {
        shared.launch("arena_clamp", shared.grid(to.len()), &[At(to.address()), F32(limit), U64(to.len() as u64)])
    }
}

/// `to += weight * (from - to)`
pub(super) fn lerp(shared: &Shared, to: &CudaBuf, from: &CudaBuf, weight: f32) -> Result<(), Error> {
    let n = to.len().min(from.len());
    let args = [At(to.address()), At(from.address()), F32(weight), U64(n as u64)];
    // SAFETY: both hold n elements.
    unsafe { shared.launch("arena_lerp", shared.grid(n), &args) }
}
