//! From rank 0's memory to that of all ranks: what it alone has read.

use backend::{Arena, Backend, Buffer};

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::reduce::bytes::{from_bytes, to_bytes};

/// Gives rank 0's arena to all. Collective.
pub fn spread<B: Backend>(session: &Session, arena: &mut Arena<B>) -> Result<(), Error> {
    arena.chunks.iter_mut().filter(|_| session.world.size > 1).try_for_each(|chunk| {
        chunk.fetch()?;
        spread_values(session, chunk.staged()?)?;
        Ok(chunk.unstage()?)
    })
}

/// Gives rank 0's values to all. Collective.
pub fn spread_values(session: &Session, values: &mut [f32]) -> Result<(), Error> {
    if session.world.size == 1 {
        return Ok(());
    }
    let mut bytes = Vec::new();
    if session.is_root() {
        to_bytes(values, &mut bytes);
    }
    let bytes = session.comm.run("a part of the checkpoint", move |world| {
        world.broadcast(&mut bytes, 0)?;
        Ok(bytes)
    })?;
    from_bytes(&bytes, values);
    Ok(())
}
