//! Progressive resizing: training images of another size from some epochs on. Everything else goes on as it is.

use backend::Backend;

use super::{Training, device_input};
use crate::error::Error;

impl<B: Backend> Training<'_, B> {
    /// Goes over to the images of the epoch that begins, or that goes on.
    pub(super) fn resize(&mut self) -> Result<(), Error> {
        let epoch = self.at.epoch;
        self.run.resize(epoch)?;
        // this process has begun with the images of its first epoch
        if epoch == self.begun.epoch || !self.run.source.phases.begins(epoch) {
            return Ok(());
        }
        let input = device_input(self.context.session, &self.run, epoch, &mut self.report)?;
        let order = Box::new(self.run.order(epoch, 0));
        let run = &self.run;
        self.loader = input.start(&run.source.train, run.source.augment(epoch), order, run.options)?;
        self.report.note(&format!("sizes: images of {} from epoch {epoch} on", run.source.augment(epoch).output()));
        self.stepper.feed(run, input, (epoch, 0))
    }
}
