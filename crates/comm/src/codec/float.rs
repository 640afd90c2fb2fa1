//! The codec `float`: unchanged f32 values. MPI determines the order of the additions, so sums agree only up to
//! rounding.

use super::Share;
use super::{Codec, Entry};
use crate::error::Error;
use crate::world::World;

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
