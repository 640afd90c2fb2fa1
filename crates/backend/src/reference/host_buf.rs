//! Memory of the reference backend.

use crate::{Buffer, Error};

/// Ordinary host memory.
#[derive(Debug, Default)]
pub struct HostBuf(pub Vec<f32>);

impl Buffer for HostBuf {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn place(&self) -> usize {
        self.0.as_ptr() as usize
    }

    fn host(&self) -> Option<&[f32]> {
        Some(&self.0)
    }

    fn staged(&mut self) -> Result<&mut [f32], Error> {
        Ok(&mut self.0)
    }

    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error> {
        to.copy_from_slice(&self.0[first..][..to.len()]);
        Ok(())
    }

    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error> {
        self.0[first..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}
