//! oneDNN's C API: convolution and inner product primitives, reorders; every status is checked. What versions 2.x and 3.x declare
//! differently is `version`'s.

use std::cell::RefCell;
use std::ptr;

use super::buf::AlignedBuf;
use super::layout::Md;
use super::sys::{self, Direction, check};
use super::threads;
use super::version::{self, Descriptor};
use crate::Error;

/// Names of the execution arguments.
pub mod arg {
    use super::super::sys;
    pub const SRC: i32 = sys::DNNL_ARG_SRC_0 as i32;
    pub const DST: i32 = sys::DNNL_ARG_DST_0 as i32;
    pub const WEIGHTS: i32 = sys::DNNL_ARG_WEIGHTS_0 as i32;
    pub const BIAS: i32 = sys::DNNL_ARG_BIAS as i32;
    pub const DIFF_SRC: i32 = sys::DNNL_ARG_DIFF_SRC_0 as i32;
    pub const DIFF_DST: i32 = sys::DNNL_ARG_DIFF_DST_0 as i32;
    pub const DIFF_WEIGHTS: i32 = sys::DNNL_ARG_DIFF_WEIGHTS_0 as i32;
    pub const DIFF_BIAS: i32 = sys::DNNL_ARG_DIFF_BIAS as i32;
    pub(super) const SCRATCHPAD: i32 = sys::DNNL_ARG_SCRATCHPAD as i32;
}

/// Version of the library that was loaded.
pub fn version() -> String {
    // SAFETY: returns a pointer to a static structure.
    let v = unsafe { &*sys::dnnl_version() };
    format!("oneDNN {}.{}.{}", v.major, v.minor, v.patch)
}

/// The CPU engine, its stream, and the work space that all primitives share (they run one at a time).
pub struct Engine {
    engine: sys::dnnl_engine_t,
    stream: sys::dnnl_stream_t,
    scratch: RefCell<AlignedBuf>,
}

impl Engine {
    /// For a pool of this many OpenMP threads, owned by the calling thread.
    pub fn new(threads: usize) -> Result<Self, Error> {
        // the team below inherits it
        threads::leave_to_others()?;
        // SAFETY: both set per-thread variables of libgomp. A team of changing size is nothing that oneDNN's plans can bear.
        unsafe {
            sys::omp_set_dynamic(0);
            sys::omp_set_num_threads(threads as i32);
        }
        let team = threads::size(threads);
        if team != threads {
            let why = format!(
                "OpenMP starts {team} of {threads}; unset OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS, or ask for --threads {team}"
            );
            return Err(Error::Unsupported { op: "compute threads".into(), why });
        }
        Self::without_team()
    }

    /// For primitives that the calling thread runs alone.
    pub(super) fn without_team() -> Result<Self, Error> {
        let (mut engine, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: out-pointers are valid; the stream is made from the engine just created.
        unsafe {
            check(sys::dnnl_engine_create(&mut engine, sys::dnnl_cpu, 0), "dnnl_engine_create", "the CPU")?;
            let status = sys::dnnl_stream_create(&mut stream, engine, sys::dnnl_stream_default_flags);
            check(status, "dnnl_stream_create", "the CPU")?;
        }
        Ok(Self { engine, stream, scratch: RefCell::default() })
    }

    /// Bytes of shared work space so far.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.borrow().as_slice().len() * 4
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: both were created by `new` and are not used after this; a failure to free has no cure.
        unsafe {
            sys::dnnl_stream_destroy(self.stream);
            sys::dnnl_engine_destroy(self.engine);
        }
    }
}

/// A primitive with its argument slots.
pub struct Primitive {
    primitive: sys::dnnl_primitive_t,
    memories: Vec<(i32, sys::dnnl_memory_t)>,
    scratch_elems: usize,
    name: String,
    op: String,
}

/// A description, which knows its layouts before the primitive is made.
struct PrimitiveDesc(sys::dnnl_primitive_desc_t);

impl Drop for PrimitiveDesc {
    fn drop(&mut self) {
        // SAFETY: owned, destroyed once.
        unsafe { sys::dnnl_primitive_desc_destroy(self.0) };
    }
}

impl PrimitiveDesc {
    /// What `create` makes for an engine and attributes, with ReLU after it.
    fn new(
        engine: &Engine,
        relu: bool,
        op: &str,
        create: impl FnOnce(
            &mut sys::dnnl_primitive_desc_t,
            (sys::dnnl_engine_t, sys::const_dnnl_primitive_attr_t),
        ) -> sys::dnnl_status_t,
    ) -> Result<Self, Error> {
        let (mut attr, mut ops, mut desc) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: all out-pointers are valid, attributes are freed below.
        unsafe {
            check(sys::dnnl_primitive_attr_create(&mut attr), "dnnl_primitive_attr_create", op)?;
            let user = sys::dnnl_scratchpad_mode_user;
            check(sys::dnnl_primitive_attr_set_scratchpad_mode(attr, user), "dnnl_primitive_attr_set", op)?;
            if relu {
                check(sys::dnnl_post_ops_create(&mut ops), "dnnl_post_ops_create", op)?;
                check(version::append_relu(ops), "dnnl_post_ops_append_eltwise", op)?;
                check(sys::dnnl_primitive_attr_set_post_ops(attr, ops), "dnnl_primitive_attr_set_post_ops", op)?;
                sys::dnnl_post_ops_destroy(ops);
            }
            let status = create(&mut desc, (engine.engine, attr));
            sys::dnnl_primitive_attr_destroy(attr);
            check(status, "dnnl_primitive_desc_create", op)?;
        }
        Ok(Self(desc))
    }

    fn md(&self, argument: i32) -> Result<Md, Error> {
        // SAFETY: the query returns a pointer into the descriptor (or to a static empty one), copied before it can go away.
        let md = unsafe {
            Descriptor::copied(sys::dnnl_primitive_desc_query_md(self.0, sys::dnnl_query_exec_arg_md, argument))
        };
        md.map(Md)
    }

    fn name(&self) -> String {
        let mut text: *const std::ffi::c_char = ptr::null();
        let out = (&raw mut text).cast();
        // SAFETY: writes a pointer to a string that lives as long as the descriptor.
        let status = unsafe { sys::dnnl_primitive_desc_query(self.0, sys::dnnl_query_impl_info_str, 0, out) };
        if status != sys::dnnl_success || text.is_null() {
            return "?".into();
        }
        // SAFETY: a NUL-terminated string, see above.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Free address space needed to generate one primitive, in bytes. The code and oneDNN's other allocations took a few hundred KB in tests.
const CODE: usize = 8 << 20;

/// Returns an error if the limit of the address space is too low for oneDNN's generated code. oneDNN does not check its own allocations.
fn room_for_code(op: &str) -> Result<(), Error> {
    let has_room = loaders::memory::address_space_left() >= CODE as u64;
    if has_room { Ok(()) } else { Err(Error::Memory { what: format!("oneDNN's code for {op}"), bytes: CODE }) }
}

impl Primitive {
    fn new(engine: &Engine, desc: &PrimitiveDesc, arguments: &[(i32, Md)], op: &str) -> Result<Self, Error> {
        let mut p = Self {
            primitive: ptr::null_mut(),
            memories: Vec::new(),
            scratch_elems: 0,
            name: desc.name(),
            op: op.into(),
        };
        room_for_code(op)?;
        // SAFETY: valid descriptor and out-pointer.
        check(unsafe { sys::dnnl_primitive_create(&mut p.primitive, desc.0) }, "dnnl_primitive_create", op)?;
        for (argument, md) in arguments {
            p.bind(engine, *argument, md)?;
        }
        let scratch = desc.md(arg::SCRATCHPAD)?;
        if scratch.elems() > 0 {
            p.scratch_elems = scratch.elems();
            p.bind(engine, arg::SCRATCHPAD, &scratch)?;
            let mut shared = engine.scratch.borrow_mut();
            if shared.as_slice().len() < p.scratch_elems {
                *shared = AlignedBuf::zeroed(p.scratch_elems, "oneDNN's work space")?;
            }
        }
        Ok(p)
    }

    fn bind(&mut self, engine: &Engine, argument: i32, md: &Md) -> Result<(), Error> {
        let mut memory = ptr::null_mut();
        // SAFETY: a memory object without storage (null handle); its handle is set before every execution.
        let status = unsafe { sys::dnnl_memory_create(&mut memory, md.0.raw(), engine.engine, ptr::null_mut()) };
        check(status, "dnnl_memory_create", &self.op)?;
        self.memories.push((argument, memory));
        Ok(())
    }

    /// The library's name of the chosen implementation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs it; `data` gives each bound argument's memory.
    ///
    /// # Safety
    /// Every pointer must be valid for the elements of its layout for the duration of the call, outputs exclusively.
    pub unsafe fn run(&self, engine: &Engine, data: &[(i32, *mut f32)]) -> Result<(), Error> {
        let mut arguments = [sys::dnnl_exec_arg_t { arg: 0, memory: ptr::null_mut() }; 8];
        let mut scratch = engine.scratch.borrow_mut();
        threads::count_library();
        for (to, &(argument, memory)) in arguments.iter_mut().zip(&self.memories) {
            let handle = if argument == arg::SCRATCHPAD {
                scratch.as_mut_slice().as_mut_ptr()
            } else {
                data.iter().find(|d| d.0 == argument).map_or(ptr::null_mut(), |d| d.1)
            };
            if handle.is_null() {
                return Err(Error::Size {
                    op: self.op.clone(),
                    expected: format!("memory for argument {argument}"),
                    got: "none".into(),
                });
            }
            // SAFETY: a live memory object; the caller vouches for the handle.
            let status = unsafe { sys::dnnl_memory_set_data_handle(memory, handle.cast()) };
            check(status, "dnnl_memory_set_data_handle", &self.op)?;
            *to = sys::dnnl_exec_arg_t { arg: argument, memory };
        }
        let count = self.memories.len() as i32;
        // SAFETY: `count` arguments are filled in; all handles are valid by the caller's promise.
        let status = unsafe { sys::dnnl_primitive_execute(self.primitive, engine.stream, count, arguments.as_ptr()) };
        check(status, "dnnl_primitive_execute", &self.op)?;
        // SAFETY: a live stream.
        check(unsafe { sys::dnnl_stream_wait(engine.stream) }, "dnnl_stream_wait", &self.op)
    }
}

impl Drop for Primitive {
    fn drop(&mut self) {
        for (_, memory) in &self.memories {
            // SAFETY: owned, destroyed once.
            unsafe { sys::dnnl_memory_destroy(*memory) };
        }
        // SAFETY: owned, destroyed once (null is accepted).
        unsafe { sys::dnnl_primitive_destroy(self.primitive) };
    }
}

/// How a convolution's kernel moves over an image.
#[derive(Clone, Copy)]
pub struct Window {
    /// Vertical, horizontal step.
    pub stride: [usize; 2],
    /// Vertical, horizontal distance of the kernel's cells.
    pub dilation: [usize; 2],
    /// Zeros at top, left, bottom, right.
    pub pads: [usize; 4],
}

/// Layouts and geometry of a convolution or, without `window`, of an inner product.
pub struct Layer<'a> {
    /// Node, for messages.
    pub op: &'a str,
    /// x or dx.
    pub x: Md,
    /// w or dw; may be [`Md::any`].
    pub w: Md,
    /// Bias, if there is one.
    pub bias: Option<Md>,
    /// y or dy.
    pub y: Md,
    /// How a convolution's kernel moves.
    pub window: Option<Window>,
    /// ReLU after the forward pass.
    pub relu: bool,
}

impl Layer<'_> {
    /// The primitive of one pass, and the weights' layout that it settled on.
    pub fn primitive(&self, engine: &Engine, pass: Direction) -> Result<(Primitive, Md), Error> {
        let desc = match self.window {
            Some(window) => self.convolution(engine, pass, window)?,
            None => self.inner_product(engine, pass)?,
        };
        let (x, w, b, y) = match pass {
            Direction::Forward => (arg::SRC, arg::WEIGHTS, Some(arg::BIAS), arg::DST),
            Direction::BackwardData => (arg::DIFF_SRC, arg::WEIGHTS, None, arg::DIFF_DST),
            Direction::BackwardWeights => (arg::SRC, arg::DIFF_WEIGHTS, Some(arg::DIFF_BIAS), arg::DIFF_DST),
        };
        let weights = desc.md(w)?;
        let mut arguments = vec![(x, self.x), (w, weights), (y, self.y)];
        if let (Some(argument), Some(md)) = (b, self.bias) {
            arguments.push((argument, md));
        }
        Ok((Primitive::new(engine, &desc, &arguments, self.op)?, weights))
    }

    fn convolution(&self, engine: &Engine, pass: Direction, window: Window) -> Result<PrimitiveDesc, Error> {
        let Window { stride: [sh, sw], dilation: [dh, dw], pads: [top, left, bottom, right] } = window;
        let dims = |a: usize, b: usize| {
            let mut d = [0i64; sys::DNNL_MAX_NDIMS as usize];
            (d[0], d[1]) = (a as i64, b as i64);
            d
        };
        // oneDNN counts the cells between those of the kernel
        let (stride, gaps) = (dims(sh, sw), dims(dh - 1, dw - 1));
        let (before, after) = (dims(top, left), dims(bottom, right));
        let (s, g, b, a) = (stride.as_ptr(), gaps.as_ptr(), before.as_ptr(), after.as_ptr());
        let relu = self.relu && pass == Direction::Forward;
        PrimitiveDesc::new(engine, relu, self.op, |to, made_with| {
            // SAFETY: all descriptors outlive the call; spatial arrays hold at least two values.
            unsafe { version::convolution(to, made_with, pass, self.tensors(), [s, g, b, a]) }
        })
    }

    fn inner_product(&self, engine: &Engine, pass: Direction) -> Result<PrimitiveDesc, Error> {
        let relu = self.relu && pass == Direction::Forward;
        PrimitiveDesc::new(engine, relu, self.op, |to, made_with| {
            // SAFETY: all descriptors outlive the call.
            unsafe { version::inner_product(to, made_with, pass, self.tensors()) }
        })
    }

    /// x, w, bias and y; null without a bias.
    fn tensors(&self) -> [version::Raw; 4] {
        let bias = self.bias.as_ref().map_or(ptr::null(), |b| b.0.raw());
        [self.x.0.raw(), self.w.0.raw(), bias, self.y.0.raw()]
    }
}

/// The primitive that copies one layout into another.
pub fn reorder(engine: &Engine, from: &Md, to: &Md, op: &str) -> Result<Primitive, Error> {
    let mut desc = ptr::null_mut();
    let e = engine.engine;
    // SAFETY: valid descriptors, engine and out-pointer; default attributes.
    let status =
        unsafe { sys::dnnl_reorder_primitive_desc_create(&mut desc, from.0.raw(), e, to.0.raw(), e, ptr::null()) };
    check(status, "dnnl_reorder_primitive_desc_create", op)?;
    Primitive::new(engine, &PrimitiveDesc(desc), &[(arg::SRC, *from), (arg::DST, *to)], op)
}

// The environment variables of oneDNN, read before another thread changes the environment: getenv(3) beside setenv(3) is undefined in C,
// and MPI libraries call the latter while they start.

/// Of the tensor that is copied: one block of channels, few pixels.
const CHANNELS: usize = 8;
const DIMS: [usize; 4] = [1, CHANNELS, 2, 2];
const VALUES: usize = 4 * CHANNELS;

/// Has oneDNN read all its variables, which it does once: some with the first engine and primitive, some when it generates code, which a
/// copy into another layout needs, some with the first execution, and the hints on the width of registers (`ONEDNN_CPU_ISA_HINTS`) where
/// they are asked for, which that copy does on some processors only.
pub fn read_environment() -> Result<(), Error> {
    // SAFETY: sets a variable of libgomp for this thread, which the engine of a run sets again: nothing here needs a team of threads.
    unsafe { sys::omp_set_num_threads(1) };
    // SAFETY: returns a number. Which hints there are does not matter here.
    unsafe { sys::dnnl_get_cpu_isa_hints() };
    let engine = Engine::without_team()?;
    let (plain, blocked) = (Md::plain(&DIMS)?, Md::activation(&DIMS, CHANNELS)?);
    let (from, mut to) = ([1.0f32; VALUES], [0.0f32; VALUES]);
    let copy = reorder(&engine, &plain, &blocked, "reading of the environment")?;
    let data = [(arg::SRC, from.as_ptr().cast_mut()), (arg::DST, to.as_mut_ptr())];
    // SAFETY: both arrays hold the values of their layout, which needs no padding.
    unsafe { copy.run(&engine, &data) }
}

#[cfg(test)]
mod tests {
    /// What it is for is tested from outside, in tests/faults.
    #[test]
    fn it_may_be_read_again() {
        super::read_environment().unwrap();
        super::read_environment().unwrap();
    }
}
