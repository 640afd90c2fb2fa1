//! What can go wrong in a sum over the ranks, and which ranks know of it.

use crate::error;

/// An error of the sum of a bucket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device: only this rank knows.
    #[error(transparent)]
    Device(#[from] backend::Error),
    /// MPI.
    #[error(transparent)]
    Comm(#[from] comm::Error),
    /// A gradient that the codec cannot carry: all ranks have seen the same scales, so all know.
    #[error(
        "the gradient of parameter {parameter} holds {what}, which no integer can stand for (reduce.codec = \"{codec}\"). Try a \
         smaller schedule.base_lr, a longer schedule.warmup_epochs, or check the data with `trireme data stats`"
    )]
    NotFinite {
        /// Name of the parameter.
        parameter: String,
        /// `NaN` or `infinity`.
        what: &'static str,
        /// Name of the codec.
        codec: &'static str,
    },
}

impl From<Error> for error::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Device(error) => error.into(),
            Error::Comm(error) => error.into(),
            Error::NotFinite { .. } => Self::Failed(error.to_string()),
        }
    }
}
