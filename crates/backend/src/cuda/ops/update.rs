//! The optimizer's passes over a bucket, and the passes around them: clipping, averages, loss scaling. A captured step
//! repeats them with the same arguments, so values that change between steps are in a block that the host writes before
//! the step.

use std::collections::hash_map::Entry;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Slice;
use crate::cuda::kernels::declarations::{
    ArenaLerp, Piece, ScaleFound, ScaleSettle, ScaleUndo, SquaresOfPieces, SumsOfRanges,
};
use crate::cuda::kernels::update::{LimitUnits, NUMBERS, NormedTensor, StepRates, UpdateArguments, UpdateStep};
use crate::cuda::pass::{GROWTH_INTERVAL, SCALES_KEPT};
use crate::cuda::shared::Shared;
use crate::cuda::step::{NormBucket, NormLists, PieceList, Pieces, cut, parts};
use crate::update::{Units, rates};
use crate::{Arena, Buffer, Error, Norms, ParamGroup, Precision, Slot, Update};

/// Index of the averages' weight in a step's numbers.
const AVERAGE: usize = 1;

fn pieces(shared: &Shared, groups: &[ParamGroup], narrow: Vec<Slot>) -> Result<Pieces, Error> {
    let mut list: Vec<Piece> = Vec::new();
    for group in groups {
        for part in parts(&group.range, &narrow) {
            let pieces = cut(&part.range, group.weight_decay, group.rate);
            list.extend(pieces.map(|piece| Piece { narrow: u32::from(part.narrow), ..piece }));
        }
    }
    let list = PieceList::new(shared.constant(&list, "the optimizer's parameter groups")?, &list);
    Ok(Pieces { of: groups.to_vec(), narrow, list })
}

/// Stores a step's numbers and its weight for averages. Returns true if they differ from the previous step's.
pub fn announce(shared: &Shared, u: &Update, average: f32) -> Result<bool, Error> {
    let mut values = vec![u.lr, f64::from(average)];
    values.extend(u.rule.kernel().numbers);
    let mut numbers = [0.0; NUMBERS];
    let Some(room) = numbers.get_mut(..values.len()) else {
        let (expected, got) = (format!("at most {} numbers", NUMBERS - 2), (values.len() - 2).to_string());
        return Err(Error::Size { op: "update rule".into(), expected, got });
    };
    room.copy_from_slice(&values);
    Ok(shared.blocks.borrow_mut().inbox.set_step(numbers))
}

/// Stores the numbers of a step and copies them to the GPU if they have changed.
pub fn begin(shared: &Shared, u: &Update, average: f32) -> Result<(), Error> {
    shared.start()?;
    let differ = announce(shared, u, average)?;
    if differ { shared.blocks.borrow_mut().inbox.send_step(shared.stream()) } else { Ok(()) }
}

/// Enqueues an optimizer step for the groups of a bucket. The loss sums that are read next tell whether all parameters
/// are finite.
pub fn update(
    shared: &Shared,
    u: &Update,
    groups: &[ParamGroup],
    factors: &CudaBuf,
    w: &CudaBuf,
    g: &CudaBuf,
    slots: &[&mut CudaBuf],
) -> Result<(), Error> {
    let rates = groups.iter().map(|s| s.rate + 1).max().unwrap_or(0).max(rates::GRADIENT + 1);
    if slots.len() < u.rule.slots() {
        let (expected, got) = (format!("{} slots", u.rule.slots()), slots.len().to_string());
        return Err(Error::Size { op: "an optimizer step".into(), expected, got });
    }
    if groups.iter().all(|group| group.range.end == 0) {
        return Ok(());
    }
    let bucket = shared.narrow_params.borrow().bucket(w);
    // the parameters with gradients that exist only in 16 bits
    let narrow = bucket.map_or_else(Vec::new, |bucket| shared.narrow_params.borrow_mut().take_open(bucket));
    let mut known = shared.lists.updates.borrow_mut();
    let key = (w.address(), !narrow.is_empty());
    let pieces = match known.remove(&key) {
        Some(pieces) if pieces.of == groups && pieces.narrow == narrow => pieces,
        // a captured step may use the old list
        other => {
            shared.note_moved(other.is_some());
            pieces(shared, groups, narrow)?
        }
    };
    let (blocks, narrow_params) = (shared.blocks.borrow(), shared.narrow_params.borrow());
    let precision = shared.settings.precision;
    let slot = |i: usize| slots.get(i).map(|s| s.slice());
    let arguments = UpdateArguments {
        pieces: pieces.list.slice(),
        count: pieces.list.count as u32,
        numbers: blocks.inbox.numbers()?,
        rates: factors.slice(),
        skip: blocks.scale_state.slice().from(1)?,
        w: w.slice(),
        g: g.slice(),
        narrow: bucket.filter(|_| key.1).map(|bucket| narrow_params.gradients[bucket].activations(precision)),
        slot0: slot(0),
        slot1: slot(1),
        slot2: slot(2),
        half: bucket.map(|bucket| narrow_params.weights[bucket].values.activations(precision)),
        not_finite: blocks.not_finite.slice(),
        end: pieces.list.end,
        factors: rates,
    };
    shared.launch(&UpdateStep { rule: u.rule.kernel().name, arguments })?;
    known.insert(key, pieces);
    Ok(())
}

/// With f16, divides the gradients by the loss scale, decides whether to skip this step, and updates the scale.
pub fn inspect(shared: &Shared, gradients: &[&CudaBuf]) -> Result<(), Error> {
    if shared.settings.precision != Precision::F16 {
        return Ok(());
    }
    let blocks = shared.blocks.borrow();
    let (scale, state, seen) = (blocks.scale.slice(), blocks.scale_state.slice(), blocks.host_scales.slice());
    for g in gradients {
        shared.launch(&ScaleFound { g: g.slice(), n: g.len() as u64, state })?;
    }
    let kept = SCALES_KEPT as u32;
    shared.launch(&ScaleSettle { scale, state, interval: GROWTH_INTERVAL, seen, kept })?;
    for g in gradients {
        shared.launch(&ScaleUndo { g: g.slice(), scale, n: g.len() as u64 })?;
    }
    Ok(())
}

/// `to += weight * (from - to)`, with the weight that was stored for the step.
pub fn lerp(shared: &Shared, to: &CudaBuf, from: &CudaBuf) -> Result<(), Error> {
    let (n, blocks) = (to.len().min(from.len()) as u64, shared.blocks.borrow());
    let average = blocks.inbox.numbers()?.from(AVERAGE)?;
    shared.launch(&ArenaLerp { to: to.slice(), from: from.slice(), average, n })
}

// Clipping by the norm of all gradients, and layer-wise rates. The host reads the norm later, if it needs it.

const NAME: &str = "norms of tensors";

impl NormLists {
    fn new(shared: &Shared, norms: &Norms) -> Result<Self, Error> {
        let (mut buckets, mut all) = (Vec::new(), Vec::new());
        // a bucket with only frozen parameters has no tensors
        for (number, tensors) in norms.tensors.iter().enumerate().filter(|(_, tensors)| !tensors.is_empty()) {
            let (mut list, mut first) = (Vec::<Piece>::new(), vec![0u32]);
            for tensor in tensors {
                list.extend(cut(&tensor.range, 0.0, 0));
                first.push(list.len() as u32);
                all.push(NormedTensor {
                    decay: tensor.weight_decay,
                    adapts: u32::from(tensor.adapts),
                    factor: tensor.factor,
                });
            }
            buckets.push(NormBucket {
                number,
                pieces: PieceList::new(shared.constant(&list, NAME)?, &list),
                first: shared.constant(&first, NAME)?,
                tensors: tensors.len(),
            });
        }
        let (count, most) = (all.len(), buckets.iter().map(|bucket| bucket.pieces.count).max().unwrap_or(0));
        let (parts, sums) = (shared.alloc(2 * most, NAME)?, shared.alloc(4 * count, NAME)?);
        Ok(Self { buckets, tensors: shared.constant(&all, NAME)?, count, parts, sums })
    }

    /// For each tensor of an arena, enqueues the sum of its squares.
    fn squares(&self, shared: &Shared, arena: &Arena<Cuda>, sums: Slice<'_, f64>) -> Result<(), Error> {
        let mut done = 0;
        for bucket in &self.buckets {
            let x = &arena.buckets[bucket.number];
            let PieceList { count, end, .. } = bucket.pieces;
            let (pieces, parts) = (bucket.pieces.slice(), self.parts.slice());
            shared.launch(&SquaresOfPieces { x: x.slice(), pieces, count: count as u32, sums: parts, end })?;
            let (first, ranges, sums) =
                (bucket.first.slice(), bucket.tensors as u32, sums.range(done, bucket.tensors)?);
            shared.launch(&SumsOfRanges { pieces: parts, first, ranges, sums, end: count })?;
            done += bucket.tensors;
        }
        Ok(())
    }
}

/// Implements [`crate::Backend::rates`].
pub fn rates(
    shared: &Shared,
    norms: &Norms,
    update: &Update,
    weights: &Arena<Cuda>,
    gradients: &Arena<Cuda>,
    to: &CudaBuf,
) -> Result<(), Error> {
    let mut known = shared.lists.norms.borrow_mut();
    let lists = match known.entry(to.address()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => place.insert(NormLists::new(shared, norms)?),
    };
    let of_gradients = lists.sums.slice::<f64>().range(0, lists.count)?;
    let of_weights = lists.sums.slice::<f64>().range(lists.count, lists.count)?;
    lists.squares(shared, gradients, of_gradients)?;
    if update.rule.adapts() {
        lists.squares(shared, weights, of_weights)?;
    }
    let blocks = shared.blocks.borrow();
    shared.launch(&StepRates {
        gradients: of_gradients,
        weights: of_weights,
        tensors: lists.tensors.slice(),
        count: lists.count as u32,
        numbers: blocks.inbox.numbers()?,
        limit: norms.limit.unwrap_or(f64::INFINITY),
        rates: to.slice(),
    })
}

fn list(shared: &Shared, units: &Units) -> Result<PieceList, Error> {
    let ranges = units.ranges().ok_or_else(|| Error::Unsupported {
        op: "adaptive clipping".into(),
        why: "the weights of an output are not adjacent in memory on this device; remove optimizer.clip_agc".into(),
    })?;
    let piece = |range: &std::ops::Range<usize>| Piece {
        from: range.start as u64,
        len: range.len() as u32,
        decay: 0.0,
        rate: 0,
        narrow: 0,
    };
    let pieces: Vec<_> = ranges.iter().map(piece).collect();
    Ok(PieceList::new(shared.constant(&pieces, "units of parameters")?, &pieces))
}

/// Implements [`crate::Backend::limit_units`].
pub fn limit(shared: &Shared, units: &Units, w: &CudaBuf, g: &CudaBuf) -> Result<(), Error> {
    let mut known = shared.lists.units.borrow_mut();
    let list = match known.entry(g.address()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => place.insert(list(shared, units)?),
    };
    shared.launch(&LimitUnits {
        units: list.slice(),
        count: list.count as u32,
        w: w.slice(),
        g: g.slice(),
        part: units.part,
        least: Units::LEAST,
        tiny: Units::TINY,
        end: list.end,
    })
}
