//! A card and this process's context on it: name, compute capability, multiprocessors, memory.

use std::cell::Cell;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute};

use crate::backend::Error;
use crate::backend::cuda::driver::library::{self, Library};
use crate::backend::cuda::driver::status::driver;

/// What a card is.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// As the driver names it.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory: usize,
    /// Tells this card from every other.
    pub uuid: [u8; 16],
}

/// The primary context of one card; it may be used from any thread that has bound it.
pub struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
    /// The card.
    pub card: Card,
}

// SAFETY: contexts may be used from any thread; the handle is only read.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

thread_local! {
    /// The context that this thread has bound last.
    static BOUND: Cell<sys::CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

/// How many cards there are; fails where there is no driver.
pub fn cards() -> Result<usize, Error> {
    library::require(Library::Driver)?;
    // SAFETY: the driver is there.
    let status = unsafe { sys::cuInit(0) };
    if status == sys::CUresult::CUDA_ERROR_NO_DEVICE {
        // also where CUDA_VISIBLE_DEVICES hides them all
        return Ok(0);
    }
    driver(status, "cuInit", "the driver")?;
    let mut count = 0;
    // SAFETY: the driver is initialised, the pointer valid for the call.
    driver(unsafe { sys::cuDeviceGetCount(&mut count) }, "cuDeviceGetCount", "the number of cards")?;
    Ok(count.max(0) as usize)
}

fn attribute(device: sys::CUdevice, attribute: CUdevice_attribute) -> Result<i32, Error> {
    let mut value = 0;
    // SAFETY: the device is one of the driver's, the pointer valid for the call.
    driver(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) }, "cuDeviceGetAttribute", "the card")?;
    Ok(value)
}

fn card(device: sys::CUdevice) -> Result<Card, Error> {
    let mut name = [0 as std::ffi::c_char; 256];
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    let mut memory = 0;
    // SAFETY: the device is one of the driver's; every pointer is valid for its call, and `name` as long as said.
    let name = unsafe {
        driver(sys::cuDeviceGetName(name.as_mut_ptr(), 255, device), "cuDeviceGetName", "the card's name")?;
        driver(sys::cuDeviceGetUuid_v2(&mut uuid, device), "cuDeviceGetUuid_v2", "the card's UUID")?;
        driver(sys::cuDeviceTotalMem_v2(&mut memory, device), "cuDeviceTotalMem_v2", "the card's memory")?;
        library::words(name.as_ptr())
    };
    let major = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let multiprocessors = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let uuid = uuid.bytes.map(|b| b as u8);
    Ok(Card { name, capability: (major, minor), multiprocessors: multiprocessors.max(1) as u32, memory, uuid })
}

impl Context {
    /// On the card of this number among those that CUDA_VISIBLE_DEVICES leaves, bound to this thread.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, Error> {
        let count = cards()?;
        if ordinal >= count {
            let visible = match std::env::var("CUDA_VISIBLE_DEVICES") {
                Ok(list) => format!("CUDA_VISIBLE_DEVICES is \"{list}\""),
                Err(_) => "CUDA_VISIBLE_DEVICES is not set".into(),
            };
            let why = format!(
                "card {ordinal} was asked for, this process sees {count}; {visible}, `nvidia-smi -L` lists all"
            );
            return Err(Error::Absent { what: "CUDA".into(), why });
        }
        let mut device = 0;
        // SAFETY: the driver is initialised, the pointer valid for the call.
        driver(unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) }, "cuDeviceGet", format!("card {ordinal}"))?;
        let card = card(device)?;
        if card.capability < (7, 0) {
            let ((major, minor), name) = (card.capability, &card.name);
            let why =
                format!("{name} has compute capability {major}.{minor}, at least 7.0 is needed; use --device cpu");
            return Err(Error::Absent { what: "CUDA".into(), why });
        }
        let mut handle = std::ptr::null_mut();
        let retained = unsafe {
            // SAFETY: the device is one of the driver's, the pointer valid for the call; given back in `drop`.
            sys::cuDevicePrimaryCtxRetain(&mut handle, device)
        };
        driver(retained, "cuDevicePrimaryCtxRetain", card.name.clone())?;
        let context = Arc::new(Self { device, handle, card });
        context.bind()?;
        Ok(context)
    }

    /// Makes it this thread's; cheap if it is already.
    pub fn bind(&self) -> Result<(), Error> {
        if BOUND.get() == self.handle {
            return Ok(());
        }
        // SAFETY: the context lives as long as `self`.
        driver(unsafe { sys::cuCtxSetCurrent(self.handle) }, "cuCtxSetCurrent", self.card.name.clone())?;
        BOUND.set(self.handle);
        Ok(())
    }

    /// Bytes that are free and bytes in all.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is bound, both pointers are valid for the call.
        driver(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, "cuMemGetInfo_v2", "the card's memory")?;
        Ok((free, total))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if BOUND.get() == self.handle {
            BOUND.set(std::ptr::null_mut());
        }
        // SAFETY: retained by `open`; a failure at the end of the process changes nothing.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
