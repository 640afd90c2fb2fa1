//! Implements [`crate::Queue`] and the other optional traits of a GPU.

use std::time::Instant;

use super::device::Cuda;
use super::driver::memory::CudaBuf;
use super::nccl;
use super::ops::{loss, update};
use super::pass::PLACES;
use crate::{
    AlgorithmChoice, Algorithms, Collectives, Error, Input, LossScale, LossScaling, LossSums, Queue, Ready, Update,
};

impl Queue<Cuda> for Cuda {
    fn prefetch(&self, images: &Input<'_>) -> Result<(), Error> {
        self.feed.send(&self.shared, images).map(|_| ())
    }

    fn keep(&self, pictures: &[u8], height: usize, width: usize) -> Result<bool, Error> {
        self.shared.start()?;
        self.feed.keep(&self.shared, pictures, height, width)
    }

    fn repeat(&self, name: &str, key: u64, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        // a pass at the other place writes its sums to other memory
        let place = self.shared.blocks.borrow().outbox.now() as u64;
        self.records.run(&self.shared, name, key ^ place, work)
    }

    fn take_notes(&self) -> Vec<String> {
        self.records.take_notes()
    }

    fn stamp(&self) -> Result<(), Error> {
        self.clock.stamp(&self.shared)
    }

    fn take_stamps(&self) -> Result<Vec<Instant>, Error> {
        self.clock.take(&self.shared)
    }

    fn mark(&self, buffer: &mut CudaBuf) -> Result<(), Error> {
        buffer.mark(self.shared.recording.get())
    }

    fn mark_pass(&self) -> Result<(), Error> {
        self.shared.blocks.borrow_mut().outbox.mark(self.shared.stream())
    }

    fn wait_for_pass(&self) -> Result<(), Error> {
        self.shared.blocks.borrow().outbox.wait_for_pass()
    }

    fn passes_ahead(&self) -> usize {
        PLACES - 1
    }

    fn hold(&self, images: &[f32]) -> Result<(), Error> {
        self.shared.start()?;
        self.feed.hold(&self.shared, images)
    }

    fn announce_update(&self, update: &Update, average: f32) -> Result<(), Error> {
        update::announce(&self.shared, update, average).map(|_| ())
    }

    fn begin_update(&self, update: &Update, average: f32) -> Result<(), Error> {
        update::begin(&self.shared, update, average)
    }

    fn launches(&self) -> u64 {
        self.shared.context().launches.made()
    }

    fn loss_sums(&self) -> Result<LossSums, Error> {
        loss::sums(&self.shared)
    }
}

impl Collectives<Cuda> for Cuda {
    fn ready(&self) -> Result<Box<dyn Ready<Self>>, Error> {
        Ok(Box::new(nccl::Entry::new(self)?))
    }
}

impl AlgorithmChoice for Cuda {
    fn used(&self) -> Algorithms {
        self.shared.chosen.used()
    }

    fn adopt(&self, algorithms: &Algorithms) {
        self.shared.chosen.adopt(algorithms);
    }
}

impl LossScaling<Cuda> for Cuda {
    fn inspect(&self, gradients: &[CudaBuf]) -> Result<(), Error> {
        update::inspect(&self.shared, gradients)
    }

    fn scale(&self) -> Result<LossScale, Error> {
        self.shared.settle()?;
        Ok(self.shared.blocks.borrow().scale())
    }

    fn set_scale(&self, scale: LossScale) -> Result<(), Error> {
        self.shared.settle()?;
        self.shared.blocks.borrow_mut().set_scale(scale)
    }
}
