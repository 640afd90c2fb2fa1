//! Memory of a device, and copies of its elements to the host and back.

use base::device_region::DeviceRegion;

use super::error::Error;

/// Device memory of f32 elements. It can move to the thread that owns MPI and back.
///
/// Its elements come to the host by [`Buffer::fetch`], [`Buffer::staged`] and [`Buffer::unstage`], from any thread; where the
/// host can address them this is no copy at all. A device starts copies of its own and orders them: what it does with the buffer
/// next waits for them, and they wait for what was enqueued before its last [`Queue::mark`](super::Queue::mark).
pub trait Buffer: Send + Default + 'static {
    /// Elements.
    fn len(&self) -> usize;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An address, unique among memories that are alive at the same time.
    fn place(&self) -> usize;

    /// The elements, where the host can address them.
    fn host(&self) -> Option<&[f32]>;

    /// Starts copying the elements to the host and does not wait.
    fn fetch(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The elements on the host; waits for a [`Buffer::fetch`]. Without one, contents are uninitialised until the first write.
    fn staged(&mut self) -> Result<&mut [f32], Error>;

    /// Starts copying the elements of [`Buffer::staged`] back to the device and does not wait.
    fn unstage(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The elements as a library may be given them that takes memory of this device, once all before the last
    /// [`mark`](super::Queue::mark) is done: waits for that. None where the host can address them, or where no library can be
    /// given them.
    fn region(&mut self) -> Result<Option<DeviceRegion<'_>>, Error> {
        Ok(None)
    }

    /// Copies elements from `first` on to the host, as many as there is room for, once all that was enqueued to change them is
    /// done. On another thread than the one that enqueues, a [`mark`](super::Queue::mark) must have come after the last change.
    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error>;

    /// Copies elements from the host to those from `first` on, and waits for them, as [`Buffer::read`] does.
    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error>;
}
