//! What the sum of gradients costs, over the first steps of a run, beside what float costs on the same ranks and links.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// What one sum, or those of a step, have cost this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// Handed to MPI_Allreduce.
    pub bytes: u64,
    /// What plain f32 would have handed over.
    pub float_bytes: u64,
    /// From gradients to what travels.
    pub encode: Duration,
    /// Inside MPI.
    pub wire: Duration,
    /// Back to gradients.
    pub decode: Duration,
    /// Inside MPI for the same buckets as f32, where that was tried.
    pub float_wire: Duration,
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.float_bytes += other.float_bytes;
        self.encode += other.encode;
        self.wire += other.wire;
        self.decode += other.decode;
        self.float_wire += other.float_wire;
    }
}

/// One sum's costs, and when it began, once the gradients were there.
#[derive(Debug, Clone)]
pub struct Timed {
    /// When it began.
    pub start: Instant,
    /// What it has cost.
    pub costs: Costs,
    /// Codes of this rank's workers that are 0, where they were counted.
    pub zeros: Vec<ZeroCount>,
}

/// Codes of one parameter that are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCount {
    /// Its number in the network.
    pub parameter: u16,
    /// Over this rank's workers.
    pub zeros: u64,
}

impl Timed {
    /// So many f32 that were summed where they lie, since `start`.
    pub fn in_place(start: Instant, elements: usize) -> Self {
        let bytes = 4 * elements as u64;
        let costs = Costs { bytes, float_bytes: bytes, wire: start.elapsed(), ..Costs::default() };
        Self { start, costs, zeros: Vec::new() }
    }
}

/// Steps that are measured, by the number of steps done before: the very first are slower than all others.
pub const MEASURED: std::ops::Range<u64> = 3..11;

/// Sums over the measured steps.
#[derive(Default)]
pub struct Measured {
    steps: u64,
    sum: Costs,
}

impl Measured {
    /// Adds one step; after the last measured step, returns the means of all.
    pub fn add(&mut self, done: u64, costs: Costs, codec: &str) -> Option<report::Exchange> {
        if !MEASURED.contains(&done) || costs.float_bytes == 0 {
            return None;
        }
        self.steps += 1;
        self.sum += costs;
        (done + 1 == MEASURED.end).then(|| self.event(codec))
    }

    fn event(&self, codec: &str) -> report::Exchange {
        let steps = self.steps as f64;
        let ms = |time: Duration| time.as_secs_f64() * 1e3 / steps;
        let Costs { encode, wire, decode, float_wire, .. } = self.sum;
        report::Exchange {
            step: MEASURED.end,
            epoch: 0,
            codec: codec.into(),
            steps: self.steps,
            bytes: self.sum.bytes / self.steps,
            float_bytes: self.sum.float_bytes / self.steps,
            encode_ms: ms(encode),
            wire_ms: ms(wire),
            decode_ms: ms(decode),
            float_ms: (!float_wire.is_zero()).then(|| ms(float_wire)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_over_the_measured_steps_come_once() {
        let ms = Duration::from_millis;
        let costs = |n| Costs {
            bytes: n,
            float_bytes: 10 * n,
            encode: ms(n),
            wire: ms(2 * n),
            decode: ms(3 * n),
            float_wire: ms(4 * n),
        };
        let mut measured = Measured::default();
        let events: Vec<_> = (0..40).filter_map(|done| measured.add(done, costs(done), "exact")).collect();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((event.step, event.steps, event.bytes, event.float_bytes), (11, 8, 6, 65));
        let times = [event.encode_ms, event.wire_ms, event.decode_ms, event.float_ms.unwrap()];
        assert_eq!(times.map(|t| (t * 100.0).round()), [650.0, 1300.0, 1950.0, 2600.0]);
        let quiet = (0..40).filter_map(|done| Measured::default().add(done, Costs::default(), "float")).count();
        assert_eq!(quiet, 0, "nothing travels on one rank");
    }
}
