//! Adaptive clipping on the GPU, see [`Units`]: a block a unit.

use crate::Error;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::kernels::arena::Piece;
use crate::cuda::kernels::update::LimitUnits;
use crate::cuda::shared::Shared;
use crate::cuda::step::UnitList;
use crate::update::Units;

fn list(shared: &Shared, units: &Units) -> Result<UnitList, Error> {
    let ranges = units.ranges().ok_or_else(|| Error::Unsupported {
        op: "adaptive clipping".into(),
        why: "a unit's weights do not lie side by side; leave optimizer.clip_agc out".into(),
    })?;
    let piece = |range: &std::ops::Range<usize>| Piece {
        from: range.start as u64,
        len: range.len() as u32,
        decay: 0.0,
        rate: 0,
        narrow: 0,
    };
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    let pieces: Vec<Piece> = ranges.iter().map(piece).collect();
    Ok(UnitList { pieces: shared.constant(&pieces, "units of parameters")?, count: pieces.len(), end })
}

/// See [`crate::Backend::limit_units`].
pub fn limit(shared: &Shared, units: &Units, w: &CudaBuf, g: &CudaBuf) -> Result<(), Error> {
    let mut known = shared.lists.units.borrow_mut();
    let units_of = match known.remove(&g.address()) {
        Some(list) => list,
        None => list(shared, units)?,
    };
    let UnitList { pieces, count, end } = &units_of;
    if *count > 0 {
        shared.launch(&LimitUnits {
            units: pieces.slice(),
            count: *count as u32,
            w: w.slice(),
            g: g.slice(),
            part: units.part,
            least: Units::LEAST,
            tiny: Units::TINY,
            end: *end,
        })?;
    }
    known.insert(g.address(), units_of);
    Ok(())
}
