//! The ways in which cuDNN can run a graph: what its heuristics propose, those that the settings allow, made ready to run.

use std::cell::RefCell;
use std::rc::Rc;

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Mode,
    cudnnBackendNumericalNote_t as Numerical,
};

use super::super::driver::status::cudnn;
use super::super::settings::{Precision, Settings};
use super::convolution::{Graph, Tensor};
use super::descriptor::{Address, Descriptor, Note};
use super::way::Way;
use super::{Convolution, Device, Direction, Handle};
use crate::backend::Error;

/// One way to run a graph, ready to run.
pub struct Prepared {
    plan: Descriptor,
    _config: (Descriptor, Vec<Descriptor>),
    _graph: Rc<Graph>,
    /// What names it in another process.
    pub way: Way,
    /// Bytes of work space.
    pub workspace: usize,
    /// The addresses of its last run, made ready.
    pack: RefCell<Option<(Vec<u64>, Descriptor)>>,
}

/// Whether the settings allow an engine with these notes.
fn allowed(notes: &[u32], precision: Precision, settings: &Settings) -> bool {
    let has = |note: Numerical| notes.contains(&(note as u32));
    let strict = precision == Precision::F32 && !settings.allow_tf32;
    // an f32 engine that uses tensor cores rounds its factors to TF32
    let rounds = strict && has(Numerical::CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    let narrow = has(Numerical::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
        || has(Numerical::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    let chance = settings.deterministic && has(Numerical::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    !(rounds || narrow || chance)
}

/// What one of cuDNN's heuristics proposes, best first.
fn proposals(device: &Device<'_>, graph: &Graph, mode: Mode) -> Result<Vec<Descriptor>, Error> {
    let heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
    heuristics.refer(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph.root])?;
    heuristics.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
    if let Device::Described(properties) = device {
        heuristics.refer(Name::CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, &[properties])?;
    }
    heuristics.finalize("heuristics of a convolution")?;
    heuristics.get_all(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, None)
}

/// Makes a way ready; `config` comes with what it refers to.
fn prepare(
    device: &Device<'_>,
    graph: &Rc<Graph>,
    config: (Descriptor, Vec<Descriptor>),
    way: Way,
) -> Result<Prepared, Error> {
    let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
    match device {
        Device::Card(_) => {
            plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &device.handle().into_iter().collect::<Vec<_>>())?
        }
        Device::Described(properties) => plan.refer(Name::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, &[properties])?,
    }
    plan.refer(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&config.0])?;
    plan.finalize("a convolution's plan")?;
    let mut workspace = [0i64];
    plan.get(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &mut workspace)?;
    let workspace = workspace[0].max(0) as usize;
    Ok(Prepared { plan, _config: config, _graph: graph.clone(), way, workspace, pack: RefCell::default() })
}

/// The ways that the settings allow, at most so many, in cuDNN's order; an error where there is none.
pub fn candidates(
    device: &Device<'_>,
    what: &Convolution,
    direction: Direction,
    settings: &Settings,
    most: usize,
) -> Result<Vec<Prepared>, Error> {
    let graph = Rc::new(what.graph(direction, device)?);
    let mut found = Vec::new();
    let (mut forbidden, mut large, mut failed) = (0, 0, 0);
    for mode in [Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_FALLBACK] {
        let proposed = match proposals(device, &graph, mode) {
            Err(lost @ Error::Lost { .. }) => return Err(lost),
            // a heuristic that knows nothing of such a graph says so by an error
            other => other.unwrap_or_default(),
        };
        for config in proposed {
            if found.len() == most {
                return Ok(found);
            }
            let (way, engine) = match Way::of(&config) {
                Ok(Some(way)) => way,
                Ok(None) => continue,
                Err(lost @ Error::Lost { .. }) => return Err(lost),
                Err(_) => {
                    failed += 1;
                    continue;
                }
            };
            let mut notes = [Note(0); 32];
            let count = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, &mut notes)?.min(notes.len());
            let notes: Vec<u32> = notes[..count].iter().map(|n| n.0).collect();
            if !allowed(&notes, what.precision, settings) {
                forbidden += 1;
                continue;
            }
            match prepare(device, &graph, (config, vec![engine]), way) {
                Ok(way) if way.workspace <= settings.workspace => found.push(way),
                Ok(_) => large += 1,
                Err(lost @ Error::Lost { .. }) => return Err(lost),
                Err(_) => failed += 1,
            }
        }
    }
    if found.is_empty() {
        let why = format!(
            "cuDNN has no way to run {what} ({direction}) over {} images: the settings forbid {forbidden} of its engines, {large} need more \
             than {} MB of work space, {failed} do not run on this card",
            what.n,
            settings.workspace >> 20
        );
        return Err(Error::Unsupported { op: "convolution".into(), why });
    }
    Ok(found)
}

/// A way that was chosen before, under the same settings; an error where it does not run.
pub fn again(
    device: &Device<'_>,
    what: &Convolution,
    direction: Direction,
    settings: &Settings,
    way: Way,
) -> Result<Prepared, Error> {
    let graph = Rc::new(what.graph(direction, device)?);
    let prepared = prepare(device, &graph, way.config(device, &graph)?, way)?;
    if prepared.workspace > settings.workspace {
        let why = format!("{} bytes of work space are too many", prepared.workspace);
        return Err(Error::Unsupported { op: "convolution".into(), why });
    }
    Ok(prepared)
}

impl Prepared {
    /// Enqueues it over these tensors and this work space.
    ///
    /// # Safety
    /// The addresses must be of memory as large as the graph's tensors and this plan's work space, until the stream is through.
    pub unsafe fn run(
        &self,
        handle: &Handle,
        tensors: &[(Tensor, u64)],
        workspace: u64,
        op: &str,
    ) -> Result<(), Error> {
        let mut addresses: Vec<u64> = tensors.iter().map(|t| t.1).collect();
        addresses.push(workspace);
        let mut pack = self.pack.borrow_mut();
        if pack.as_ref().is_none_or(|(known, _)| *known != addresses) {
            let new = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
            let names: Vec<i64> = tensors.iter().map(|t| t.0 as i64).collect();
            let places: Vec<Address> = tensors.iter().map(|t| Address(t.1)).collect();
            new.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &names)?;
            new.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &places)?;
            new.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Address(workspace)])?;
            new.finalize("the tensors of a convolution")?;
            *pack = Some((addresses, new));
        }
        let Some((_, pack)) = &*pack else { return Ok(()) };
        // SAFETY: handle, plan and pack live; the memory is as the caller promises.
        let status = unsafe { sys::cudnnBackendExecute(handle.raw, self.plan.raw(), pack.raw()) };
        cudnn(status, "cudnnBackendExecute", op)
    }
}
