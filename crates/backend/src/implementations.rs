//! The implementations of an operation among which a device chooses by a table, for a program that measures them and writes the table.

use super::device_memory::DeviceMemory;
use super::error::Error;
use super::planned::{PlanRequest, Planned};

/// One way to compute an operation.
pub struct Implementation<B: DeviceMemory> {
    /// As tables name it.
    pub name: &'static str,
    /// The operation, planned.
    pub plan: Box<dyn Planned<B>>,
}

/// A device that has several implementations of some operations.
pub trait Implementations<B: DeviceMemory> {
    /// All that there are for an operation; one where there is no choice. The one that the device's `plan` takes comes first.
    fn all(&self, request: &PlanRequest<'_, B>) -> Result<Vec<Implementation<B>>, Error>;

    /// The table's row of an operation: the implementation to be taken, and for each number of images its time over that of the fastest
    /// other. None for an operation without a choice.
    fn row(&self, request: &PlanRequest<'_, B>, by: &str, ratios: &[f64]) -> Option<String>;

    /// A table's text with these rows in place of those of the same sizes; `taken` says where and how, and `batches` with which numbers
    /// of images. The error names the line of `before` that is no row.
    fn table(&self, before: &str, taken: &str, batches: &[usize], rows: &[String]) -> Result<String, String>;
}
