//! The optimizer's passes over a chunk, and what goes before and after: limits, averages, the end of loss scaling. A recorded step
//! replays them, so what changes from step to step lies in a block that is written before. Norms are in `norms`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use crate::backend::cuda::driver::inlet::Inlet;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::kernels::module::Arg::{At, F32, U32, U64};
use crate::backend::cuda::pass::GROWTH_INTERVAL;
use crate::backend::cuda::settings::Precision;
use crate::backend::cuda::shared::Shared;
use crate::backend::update::rates;
use crate::backend::{Buffer, Error, ParamGroup, Update};

/// Elements that a block takes at once.
const PIECE: usize = 4096;

/// Words of a piece.
pub const PIECE_WORDS: usize = 6;

/// Numbers of a step at most, see kernels/update.cu.
const NUMBERS: usize = 10;

/// Where the averages' weight is among them.
const AVERAGE: usize = 1;

/// Lists and numbers that are on the GPU already.
#[derive(Default)]
pub struct Lists {
    /// By the parameters' address.
    updates: RefCell<HashMap<u64, Pieces>>,
    numbers: RefCell<Option<Inlet<f64>>>,
    /// By the address of the rates that they make.
    pub norms: RefCell<HashMap<u64, crate::backend::cuda::ops::norms::Lists>>,
}

/// Parameter groups in pieces, as the kernels read them.
struct Pieces {
    of: Vec<ParamGroup>,
    list: CudaBuf,
    count: usize,
}

impl Pieces {
    fn new(shared: &Shared, groups: &[ParamGroup]) -> Result<Self, Error> {
        let mut list = Vec::new();
        groups.iter().for_each(|s| cut(&s.range, s.weight_decay, s.rate, &mut list));
        let count = list.len() / PIECE_WORDS;
        Ok(Self { of: groups.to_vec(), list: shared.constant(&list, "the optimizer's parameter groups")?, count })
    }
}

/// One range cut into pieces.
pub fn cut(range: &Range<usize>, decay: f32, rate: usize, list: &mut Vec<u32>) {
    for from in range.clone().step_by(PIECE) {
        let len = (range.end - from).min(PIECE);
        let from = from as u64;
        list.extend([from as u32, (from >> 32) as u32, len as u32, decay.to_bits(), rate as u32, 0]);
    }
}

/// Writes the numbers of a step, and the weight of its averages.
pub fn begin(shared: &Shared, u: &Update, average: f32) -> Result<(), Error> {
    shared.start()?;
    let mut values = vec![u.lr, f64::from(average)];
    values.extend(u.rule.kernel().numbers);
    values.resize(NUMBERS, 0.0);
    let mut kept = shared.lists.numbers.borrow_mut();
    let mut inlet = match kept.take() {
        Some(inlet) => inlet,
        None => shared.inlet(NUMBERS, "the optimizer's numbers")?,
    };
    if inlet.values() != values {
        inlet.write(&values, shared.stream())?;
    }
    *kept = Some(inlet);
    Ok(())
}

/// Their address on the GPU.
pub fn numbers(shared: &Shared) -> Result<u64, Error> {
    let not_begun = || Error::Unsupported { op: "an optimizer step".into(), why: "it was not begun".into() };
    shared.lists.numbers.borrow().as_ref().map(Inlet::address).ok_or_else(not_begun)
}

/// One optimizer step over the groups of a chunk; whether all parameters are finite comes with the next sums.
pub fn update(
    shared: &Shared,
    u: &Update,
    groups: &[ParamGroup],
    factors: &CudaBuf,
    w: &CudaBuf,
    g: &CudaBuf,
    slots: &[&mut CudaBuf],
) -> Result<(), Error> {
    let end = groups.iter().map(|s| s.range.end).max().unwrap_or(0);
    [w, g].into_iter().chain(slots.iter().map(|s| &**s)).try_for_each(|b| b.check(0, end))?;
    factors.check(0, groups.iter().map(|s| s.rate + 1).max().unwrap_or(0).max(rates::GRADIENT + 1))?;
    if slots.len() < u.rule.slots() {
        let (expected, got) = (format!("{} slots", u.rule.slots()), slots.len().to_string());
        return Err(Error::Size { op: "an optimizer step".into(), expected, got });
    }
    if end == 0 {
        return Ok(());
    }
    let numbers = At(numbers(shared)?);
    let mut known = shared.lists.updates.borrow_mut();
    let pieces = match known.remove(&w.address()) {
        Some(pieces) if pieces.of == groups => pieces,
        // a recorded step may know the others
        other => {
            shared.moved.set(shared.moved.get() + u64::from(other.is_some()));
            Pieces::new(shared, groups)?
        }
    };
    let blocks = shared.blocks.borrow();
    let slot = |i: usize| At(slots.get(i).map_or(0, |s| s.address()));
    let list = [At(pieces.list.address()), U32(pieces.count as u32), numbers, At(factors.address())];
    let own = [At(blocks.scale_state.at(1)?), At(w.address()), At(g.address()), slot(0), slot(1), slot(2)];
    let args = [&list[..], &own, &[At(blocks.not_finite.address())]].concat();
    let grid = shared.grid(pieces.count * crate::backend::cuda::kernels::module::THREADS as usize);
    // SAFETY: parameters, gradients and as many slots as the rule has hold all groups, and the factors all rates: checked above.
    unsafe { shared.launch(u.rule.kernel().name, grid, &args)? };
    known.insert(w.address(), pieces);
    Ok(())
}

/// Under f16: takes the loss's scale out of the gradients, and settles whether they are fit for a step and what the next scale is.
pub fn inspect(shared: &Shared, gradients: &[CudaBuf]) -> Result<(), Error> {
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
pub fn add(shared: &Shared, to: &CudaBuf, from: &CudaBuf) -> Result<(), Error> {
    let n = to.len().min(from.len());
    // SAFETY: both hold n elements.
    unsafe { shared.launch("arena_add", shared.grid(n), &[At(to.address()), At(from.address()), U64(n as u64)]) }
}

/// `to *= factor`
pub fn scale(shared: &Shared, to: &CudaBuf, factor: f32) -> Result<(), Error> {
    // SAFETY: it is as long as it says.
    unsafe {
        shared.launch("arena_scale", shared.grid(to.len()), &[At(to.address()), F32(factor), U64(to.len() as u64)])
    }
}

/// Into [-limit, limit].
pub fn clamp(shared: &Shared, to: &CudaBuf, limit: f32) -> Result<(), Error> {
    // SAFETY: it is as long as it says.
    unsafe {
        shared.launch("arena_clamp", shared.grid(to.len()), &[At(to.address()), F32(limit), U64(to.len() as u64)])
    }
}

/// `to += weight * (from - to)`, by the weight that the step was begun with.
pub fn lerp(shared: &Shared, to: &CudaBuf, from: &CudaBuf) -> Result<(), Error> {
    let n = to.len().min(from.len());
    let weight = At(numbers(shared)? + 8 * AVERAGE as u64);
    // SAFETY: both hold n elements.
    unsafe {
        shared.launch("arena_lerp", shared.grid(n), &[At(to.address()), At(from.address()), weight, U64(n as u64)])
    }
}
