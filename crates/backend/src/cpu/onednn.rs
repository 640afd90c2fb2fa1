//! oneDNN's C API: primitives of convolutions and inner products, and reorders. Every status is checked. `version` has
//! the declarations that differ between oneDNN 2.x and 3.x.

use std::cell::RefCell;
use std::ptr;

use super::buf::AlignedBuf;
use super::layout::Md;
use super::sys::{self, Direction, Owned, check};
use super::threads;
use super::version::{self, Descriptor};
use crate::Error;

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

/// Returns the name and version of the loaded library.
pub fn version() -> String {
    // SAFETY: the function returns a pointer to a static structure.
    let v = unsafe { &*sys::dnnl_version() };
    format!("oneDNN {}.{}.{}", v.major, v.minor, v.patch)
}

/// The CPU engine, its stream, and the workspace that all primitives share, because they run one after another.
pub struct Engine {
    stream: Owned<sys::dnnl_stream>,
    engine: Owned<sys::dnnl_engine>,
    scratch: RefCell<AlignedBuf>,
}

impl Engine {
    /// Creates an engine for a pool of `threads` OpenMP threads. The pool belongs to the calling thread.
    pub fn new(threads: usize) -> Result<Self, Error> {
        // The new threads inherit the signal mask.
        threads::block_handled_signals()?;
        // SAFETY: both calls only set variables of libgomp for this thread. The team's size must be fixed, because
        // oneDNN plans for it.
        unsafe {
            sys::omp_set_dynamic(0);
            sys::omp_set_num_threads(threads as i32);
        }
        let team = threads::team_size(threads);
        if team != threads {
            let why = format!(
                "OpenMP starts {team} of {threads} threads; unset OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS, or use --threads {team}"
            );
            return Err(Error::Unsupported { op: "compute threads".into(), why });
        }
        Self::without_team()
    }

    /// Creates an engine for primitives that run only on the calling thread.
    pub(super) fn without_team() -> Result<Self, Error> {
        // SAFETY: out-pointers are valid, and the stream belongs to the new engine.
        let (engine, stream) = unsafe {
            let create = |to: &mut _| sys::dnnl_engine_create(to, sys::dnnl_cpu, 0);
            let engine: Owned<sys::dnnl_engine> = Owned::new("dnnl_engine_create", "the CPU", create)?;
            let create = |to: &mut _| sys::dnnl_stream_create(to, engine.raw(), sys::dnnl_stream_default_flags);
            let stream = Owned::new("dnnl_stream_create", "the CPU", create)?;
            (engine, stream)
        };
        Ok(Self { stream, engine, scratch: RefCell::default() })
    }

    /// Returns the current size of the shared workspace.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.borrow().as_slice().len() * 4
    }
}

/// A primitive and the slots for its arguments.
pub struct Primitive {
    memories: Vec<Memory>,
    primitive: Owned<sys::dnnl_primitive>,
    name: String,
    op: String,
}

/// The slot of an argument: oneDNN's memory object without storage, and the size of its layout in f32 words.
struct Memory {
    argument: i32,
    object: Owned<sys::dnnl_memory>,
    elems: usize,
}

impl Memory {
    fn new(engine: &Engine, argument: i32, md: &Md, op: &str) -> Result<Self, Error> {
        // SAFETY: descriptor, engine and out-pointer are valid. The data handle is set before every execution.
        let object = unsafe {
            let create = |to: &mut _| sys::dnnl_memory_create(to, md.0.raw(), engine.engine.raw(), ptr::null_mut());
            Owned::new("dnnl_memory_create", op, create)?
        };
        Ok(Self { argument, object, elems: md.elems() })
    }

    /// Returns true if primitives write to this argument.
    fn is_written(&self) -> bool {
        [arg::DST, arg::DIFF_SRC, arg::DIFF_WEIGHTS, arg::DIFF_BIAS, arg::SCRATCHPAD].contains(&self.argument)
    }
}

pub enum Data<'a> {
    Read(&'a [f32]),
    Write(&'a mut [f32]),
}

impl Data<'_> {
    /// Returns address, length, and whether the memory may be written.
    fn raw(&mut self) -> (*mut f32, usize, bool) {
        match self {
            Self::Read(data) => (data.as_ptr().cast_mut(), data.len(), false),
            Self::Write(data) => (data.as_mut_ptr(), data.len(), true),
        }
    }
}

/// A primitive descriptor. It can be asked for layouts before the primitive is created.
struct PrimitiveDesc(Owned<sys::dnnl_primitive_desc>);

impl PrimitiveDesc {
    fn new(engine: &Engine, layer: &Layer<'_>, pass: Direction) -> Result<Self, Error> {
        let (op, window) = (layer.op, layer.window.map(Window::spatial));
        let window = window.as_ref().map(|window| window.each_ref().map(|values| values.as_ptr()));
        let bias = layer.bias.as_ref().map_or(ptr::null(), |b| b.0.raw());
        let tensors = [layer.x.0.raw(), layer.w.0.raw(), bias, layer.y.0.raw()];
        // SAFETY: all handles and out-pointers are valid, descriptors outlive the call, and the spatial arrays have at
        // least two values.
        unsafe {
            let attr: Owned<sys::dnnl_primitive_attr> =
                Owned::new("dnnl_primitive_attr_create", op, |to| sys::dnnl_primitive_attr_create(to))?;
            let user = sys::dnnl_scratchpad_mode_user;
            check(sys::dnnl_primitive_attr_set_scratchpad_mode(attr.raw(), user), "dnnl_primitive_attr_set", op)?;
            if layer.relu && pass == Direction::Forward {
                let ops: Owned<sys::dnnl_post_ops> =
                    Owned::new("dnnl_post_ops_create", op, |to| sys::dnnl_post_ops_create(to))?;
                check(version::append_relu(ops.raw()), "dnnl_post_ops_append_eltwise", op)?;
                let status = sys::dnnl_primitive_attr_set_post_ops(attr.raw(), ops.raw());
                check(status, "dnnl_primitive_attr_set_post_ops", op)?;
            }
            let made_with = (engine.engine.raw(), attr.raw().cast_const());
            let create = |to: &mut _| version::describe(to, made_with, pass, tensors, window);
            Owned::new("dnnl_primitive_desc_create", op, create).map(Self)
        }
    }

    fn md(&self, argument: i32) -> Result<Md, Error> {
        // SAFETY: the query returns a pointer into the descriptor or to a static empty descriptor, which is copied
        // while it is valid.
        let md = unsafe {
            Descriptor::copied(sys::dnnl_primitive_desc_query_md(self.0.raw(), sys::dnnl_query_exec_arg_md, argument))
        };
        md.map(Md)
    }

    fn name(&self) -> String {
        let mut text: *const std::ffi::c_char = ptr::null();
        let out = (&raw mut text).cast();
        // SAFETY: the query writes a pointer to a string that lives as long as the descriptor.
        let status = unsafe { sys::dnnl_primitive_desc_query(self.0.raw(), sys::dnnl_query_impl_info_str, 0, out) };
        if status != sys::dnnl_success || text.is_null() {
            return "?".into();
        }
        // SAFETY: the pointer is not null and points to a NUL-terminated string.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Free address space, in bytes, that generating a primitive needs. The code and oneDNN's other allocations took a few
/// hundred KB in tests.
const CODE: usize = 8 << 20;

/// Returns an error if the limit of the address space is too low for oneDNN's generated code. oneDNN does not check its own allocations.
fn check_room_for_code(op: &str) -> Result<(), Error> {
    let has_room = loaders::memory::address_space_left() >= CODE as u64;
    if has_room { Ok(()) } else { Err(Error::Memory { what: format!("oneDNN's code for {op}"), bytes: CODE }) }
}

impl Primitive {
    fn new(engine: &Engine, desc: &PrimitiveDesc, arguments: &[(i32, Md)], op: &str) -> Result<Self, Error> {
        check_room_for_code(op)?;
        // SAFETY: descriptor and out-pointer are valid.
        let primitive =
            unsafe { Owned::new("dnnl_primitive_create", op, |to| sys::dnnl_primitive_create(to, desc.0.raw()))? };
        let memory = |(argument, md): &(i32, Md)| Memory::new(engine, *argument, md, op);
        let mut memories: Vec<Memory> = arguments.iter().map(memory).collect::<Result<_, _>>()?;
        let scratch = desc.md(arg::SCRATCHPAD)?;
        if scratch.elems() > 0 {
            memories.push(Memory::new(engine, arg::SCRATCHPAD, &scratch, op)?);
            let mut shared = engine.scratch.borrow_mut();
            if shared.as_slice().len() < scratch.elems() {
                *shared = AlignedBuf::zeroed(scratch.elems(), "oneDNN's workspace")?;
            }
        }
        Ok(Self { memories, primitive, name: desc.name(), op: op.into() })
    }

    /// Returns oneDNN's name of the implementation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the primitive. `data` has the memory of each argument. Returns an error if an argument is missing, too
    /// short, or not writable although the primitive writes it.
    pub fn run(&self, engine: &Engine, data: &mut [(i32, Data<'_>)]) -> Result<(), Error> {
        let mut arguments = [sys::dnnl_exec_arg_t { arg: 0, memory: ptr::null_mut() }; 8];
        let mut scratch = engine.scratch.borrow_mut();
        threads::count_library_region();
        let mut handles = [ptr::null_mut(); 8];
        for (to, memory) in handles.iter_mut().zip(&self.memories) {
            let argument = memory.argument;
            let found = match argument {
                arg::SCRATCHPAD => Some(Data::Write(scratch.as_mut_slice()).raw()),
                _ => data.iter_mut().find(|d| d.0 == argument).map(|d| d.1.raw()),
            };
            *to = match found {
                Some((address, len, writable)) if len >= memory.elems && writable >= memory.is_written() => address,
                _ => {
                    let expected = format!("memory for argument {argument}");
                    let got = found.map_or("none".into(), |(_, len, _)| format!("{len} elements"));
                    return Err(Error::Size { op: self.op.clone(), expected, got });
                }
            };
        }
        let (count, stream) = (self.memories.len() as i32, engine.stream.raw());
        // SAFETY: all objects are alive, `arguments` has `count` valid entries, and their addresses are slices at least
        // as long as the layouts. Slices that the primitive writes are exclusively borrowed, and it has finished when
        // the wait returns.
        unsafe {
            for ((to, memory), handle) in arguments.iter_mut().zip(&self.memories).zip(handles) {
                let status = sys::dnnl_memory_set_data_handle(memory.object.raw(), handle.cast());
                check(status, "dnnl_memory_set_data_handle", &self.op)?;
                *to = sys::dnnl_exec_arg_t { arg: memory.argument, memory: memory.object.raw() };
            }
            let status = sys::dnnl_primitive_execute(self.primitive.raw(), stream, count, arguments.as_ptr());
            check(status, "dnnl_primitive_execute", &self.op)?;
            check(sys::dnnl_stream_wait(stream), "dnnl_stream_wait", &self.op)
        }
    }
}

/// How the kernel of a convolution moves over an image.
#[derive(Clone, Copy)]
pub struct Window {
    /// Vertical and horizontal step.
    pub stride: [usize; 2],
    /// Vertical and horizontal distance between the kernel's taps.
    pub dilation: [usize; 2],
    /// Zeros at the top, left, bottom and right.
    pub pads: [usize; 4],
}

impl Window {
    /// Returns strides, the gaps between taps, and the padding before and after, as oneDNN describes them.
    fn spatial(self) -> [[sys::dnnl_dim_t; 2]; 4] {
        let Self { stride, dilation: [down, across], pads: [top, left, bottom, right] } = self;
        // oneDNN describes dilation by the number of pixels between two taps
        [stride, [down - 1, across - 1], [top, left], [bottom, right]].map(|values| values.map(|value| value as i64))
    }
}

/// Layouts and geometry of a convolution, or of an inner product if `window` is `None`.
pub struct Layer<'a> {
    /// Name of the node, for messages.
    pub op: &'a str,
    /// x or dx.
    pub x: Md,
    /// w or dw. It may be [`Md::any`].
    pub w: Md,
    pub bias: Option<Md>,
    /// y or dy.
    pub y: Md,
    pub window: Option<Window>,
    /// True if the forward pass applies ReLU.
    pub relu: bool,
}

impl Layer<'_> {
    /// Creates the primitive of a pass. Also returns the layout of the weights that oneDNN has chosen.
    pub fn primitive(&self, engine: &Engine, pass: Direction) -> Result<(Primitive, Md), Error> {
        let desc = PrimitiveDesc::new(engine, self, pass)?;
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
}

/// Creates a primitive that copies between layouts.
pub fn reorder(engine: &Engine, from: &Md, to: &Md, op: &str) -> Result<Primitive, Error> {
    let e = engine.engine.raw();
    // SAFETY: descriptors, engine and out-pointer are valid, and null means default attributes.
    let desc = unsafe {
        Owned::new("dnnl_reorder_primitive_desc_create", op, |desc| {
            sys::dnnl_reorder_primitive_desc_create(desc, from.0.raw(), e, to.0.raw(), e, ptr::null())
        })?
    };
    Primitive::new(engine, &PrimitiveDesc(desc), &[(arg::SRC, *from), (arg::DST, *to)], op)
}

// oneDNN reads its environment variables before another thread changes the environment. In C, a getenv(3) that runs at
// the same time as setenv(3) is undefined behaviour, and MPI libraries call setenv while they start.

/// Size of the tensor that is copied: a channel block with a few pixels.
const CHANNELS: usize = 8;
const DIMS: [usize; 4] = [1, CHANNELS, 2, 2];
const VALUES: usize = 4 * CHANNELS;

/// Makes oneDNN read all its environment variables. It reads each variable once. It reads some with the first engine
/// and primitive and some with the first execution. It reads others when it generates code, as for a copy into another
/// layout. It reads `ONEDNN_CPU_ISA_HINTS` when the hints are queried, which this copy does only on some processors.
pub fn read_environment() -> Result<(), Error> {
    // SAFETY: the first call sets a variable of libgomp for this thread. The engine of a run sets it again, and nothing
    // here needs a team of threads. The second call returns a number, which is not needed.
    unsafe {
        sys::omp_set_num_threads(1);
        sys::dnnl_get_cpu_isa_hints();
    }
    let engine = Engine::without_team()?;
    let (plain, blocked) = (Md::plain(&DIMS)?, Md::activation(&DIMS, CHANNELS)?);
    let (from, mut to) = ([1.0f32; VALUES], [0.0f32; VALUES]);
    let copy = reorder(&engine, &plain, &blocked, "reading the environment")?;
    copy.run(&engine, &mut [(arg::SRC, Data::Read(&from)), (arg::DST, Data::Write(&mut to))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_refuses_missing_short_and_read_only_buffers() {
        let engine = Engine::new(1).unwrap();
        let md = Md::plain(&[VALUES]).unwrap();
        let copy = reorder(&engine, &md, &md, "test").unwrap();
        let (from, mut to) = ([1.0; VALUES], [0.0; VALUES]);
        let refused = |data: &mut [(i32, Data<'_>)]| matches!(copy.run(&engine, data), Err(Error::Size { .. }));
        assert!(refused(&mut [(arg::SRC, Data::Read(&from)), (arg::DST, Data::Write(&mut to[1..]))]));
        assert!(refused(&mut [(arg::SRC, Data::Read(&from)), (arg::DST, Data::Read(&from))]));
        assert!(refused(&mut [(arg::DST, Data::Write(&mut to))]));
        copy.run(&engine, &mut [(arg::SRC, Data::Read(&from)), (arg::DST, Data::Write(&mut to))]).unwrap();
        assert_eq!(from, to);
    }

    /// `tests/faults` checks from outside that the variables are read early.
    #[test]
    fn environment_can_be_read_twice() {
        super::read_environment().unwrap();
        super::read_environment().unwrap();
    }
}
