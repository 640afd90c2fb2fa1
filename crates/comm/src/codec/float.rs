//! The codec `float`: f32 as they are. The order of additions is MPI's, so that sums agree to rounding only.

use super::Share;
use super::{Codec, Entry};
use crate::error::Error;
use crate::world::World;

/// In the catalogue.
pub const ENTRY: Entry = Entry {
    name: "float",
    about: "f32, added in MPI's order",
    keys: &[],
    most_workers: usize::MAX,
    integer: false,
    biased: false,
    make: |_, _, _| Box::new(Float),
    zeros: None,
    spec: |_, _| None,
};

struct Float;

impl Codec for Float {
    fn send(&mut self, world: &World, shares: &mut [Share<'_>]) -> Result<(), Error> {
        shares.iter_mut().try_for_each(|share| world.sum_f32(share.gradients))
    }
}
