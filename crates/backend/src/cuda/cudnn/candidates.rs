//! Finds the algorithms with which cuDNN can run a graph. It asks cuDNN's heuristics, removes proposals that the
//! settings forbid, and prepares the rest to run.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::convolution::{Convolution, Direction, Graph, Tensor};
use super::descriptor::{Address, Descriptor, Device, Handle, Knob, Note};
use crate::cuda::driver::calls::cudnn::{
    self as sys, cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind,
    cudnnBackendHeurMode_t as Mode, cudnnBackendNumericalNote_t as Numerical,
};
use crate::cuda::driver::slice::Slice;
use crate::cuda::driver::status::{attempted, cudnn};
use crate::cuda::settings::{Settings, WORKSPACE};
use crate::{Error, Precision};

/// An algorithm for a graph, prepared to run.
pub struct PreparedAlgorithm {
    plan: Descriptor,
    _config: (Descriptor, Vec<Descriptor>),
    _graph: Rc<Graph>,
    /// Engine and knobs, from which another process can prepare the same algorithm.
    pub algorithm: ConvAlgorithm,
    /// Bytes of the graph's tensors, indexed like [`Tensor`].
    sizes: [usize; 4],
    pub workspace: usize,
    /// The tensors' addresses in the last run, and cuDNN's variant pack for these addresses.
    pack: RefCell<Option<(Vec<u64>, Descriptor)>>,
}

/// Returns true if the settings allow an engine with these numerical notes.
fn allowed(notes: &[u32], precision: Precision, settings: &Settings) -> bool {
    let has = |note: Numerical| notes.contains(&(note as u32));
    let strict = precision == Precision::F32 && !settings.allow_tf32;
    // an f32 engine on tensor cores rounds its inputs to TF32
    let rounds = strict && has(Numerical::CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    let narrow = has(Numerical::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
        || has(Numerical::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    let chance = settings.deterministic && has(Numerical::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    !(rounds || narrow || chance)
}

/// Asks one of cuDNN's heuristics for proposals, best first.
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

/// A graph for a device and the settings that limit its algorithms.
struct Task<'a> {
    device: &'a Device<'a>,
    what: &'a Convolution,
    graph: Rc<Graph>,
    settings: &'a Settings,
}

/// An engine configuration and the descriptors that it refers to.
type Config = (Descriptor, Vec<Descriptor>);

/// Returns the configuration of `algorithm` for this graph. Returns an error if cuDNN has no such algorithm for the
/// graph.
fn configuration(algorithm: &ConvAlgorithm, device: &Device<'_>, graph: &Graph) -> Result<Config, Error> {
    let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    engine.refer(Name::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &[&graph.root])?;
    engine.set(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[algorithm.engine])?;
    if let Device::Described(properties) = device {
        engine.refer(Name::CUDNN_ATTR_ENGINE_DEVICEPROP, &[properties])?;
    }
    engine.finalize("an engine")?;
    let knob = |&(kind, value): &(u32, i64)| {
        let choice = Descriptor::new(Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?;
        choice.set(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &[Knob(kind)])?;
        choice.set(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[value])?;
        choice.finalize("a knob of an engine")?;
        Ok(choice)
    };
    let mut parts = algorithm.knobs.iter().map(knob).collect::<Result<Vec<_>, Error>>()?;
    let config = Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?;
    config.refer(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &[&engine])?;
    if !parts.is_empty() {
        config.refer(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &parts.iter().collect::<Vec<_>>())?;
    }
    config.finalize("a configuration of an engine")?;
    parts.push(engine);
    Ok((config, parts))
}

/// Number of rejected proposals, by reason: forbidden by the settings, workspace too large, or failed.
#[derive(Default)]
struct Rejections {
    forbidden: usize,
    large: usize,
    failed: usize,
}

impl<'a> Task<'a> {
    fn new(
        device: &'a Device<'a>,
        what: &'a Convolution,
        direction: Direction,
        settings: &'a Settings,
    ) -> Result<Self, Error> {
        Ok(Self { device, what, graph: Rc::new(what.graph(direction, device)?), settings })
    }

    fn prepare(&self, config: Config, algorithm: ConvAlgorithm) -> Result<PreparedAlgorithm, Error> {
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        match self.device {
            Device::Gpu(_) => {
                let handle: Vec<_> = self.device.handle().into_iter().collect();
                plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &handle)?;
            }
            Device::Described(properties) => plan.refer(Name::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, &[properties])?,
        }
        plan.refer(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&config.0])?;
        plan.finalize("a convolution's plan")?;
        let mut workspace = [0i64];
        plan.get(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &mut workspace)?;
        let workspace = workspace[0].max(0) as usize;
        let [x, w, y] = self.what.elems();
        let sizes = [x, w, y, self.what.y[0]].map(|elems| elems * self.what.precision.bytes());
        let (graph, pack) = (self.graph.clone(), RefCell::default());
        Ok(PreparedAlgorithm { plan, _config: config, _graph: graph, algorithm, sizes, workspace, pack })
    }

    /// Prepares a proposal. Returns `None` if the settings forbid it or it cannot run, and an error if the GPU has
    /// failed.
    fn consider(&self, config: Descriptor, rejections: &mut Rejections) -> Result<Option<PreparedAlgorithm>, Error> {
        let taken = match ConvAlgorithm::from_config(&config) {
            Ok(None) => return Ok(None),
            Ok(Some((algorithm, engine))) => match notes(&engine) {
                Ok(notes) if !allowed(&notes, self.what.precision, self.settings) => {
                    rejections.forbidden += 1;
                    return Ok(None);
                }
                Ok(_) => self.prepare((config, vec![engine]), algorithm),
                Err(e) => Err(e),
            },
            Err(e) => Err(e),
        };
        match attempted(taken)? {
            Some(prepared) if prepared.workspace <= WORKSPACE => return Ok(Some(prepared)),
            Some(_) => rejections.large += 1,
            None => rejections.failed += 1,
        }
        Ok(None)
    }
}

fn notes(engine: &Descriptor) -> Result<Vec<u32>, Error> {
    let mut notes = [Note(0); 32];
    let count = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, &mut notes)?.min(notes.len());
    Ok(notes[..count].iter().map(|n| n.0).collect())
}

/// Returns up to `most` algorithms that the settings allow, in cuDNN's order. Returns an error if there are none.
pub fn candidates(
    device: &Device<'_>,
    what: &Convolution,
    direction: Direction,
    settings: &Settings,
    most: usize,
) -> Result<Vec<PreparedAlgorithm>, Error> {
    let task = Task::new(device, what, direction, settings)?;
    let (mut found, mut rejections) = (Vec::new(), Rejections::default());
    for mode in [Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_FALLBACK] {
        // a heuristic that does not support this graph returns an error
        let proposed = attempted(proposals(device, &task.graph, mode))?;
        for config in proposed.unwrap_or_default() {
            if found.len() == most {
                return Ok(found);
            }
            found.extend(task.consider(config, &mut rejections)?);
        }
    }
    if found.is_empty() {
        let Rejections { forbidden, large, failed } = rejections;
        let why = format!(
            "cuDNN has no algorithm for {what} ({direction}) with {} images. Of its engines, the settings forbid \
             {forbidden}, {large} would need more than {} MB of workspace, and {failed} cannot run on this GPU. Try \
             another batch or precision",
            what.n,
            WORKSPACE >> 20
        );
        return Err(Error::Unsupported { op: "convolution".into(), why });
    }
    Ok(found)
}

/// Prepares an algorithm that was chosen earlier under the same settings. Returns an error if it does not run.
pub fn prepare_known(
    device: &Device<'_>,
    what: &Convolution,
    direction: Direction,
    settings: &Settings,
    algorithm: ConvAlgorithm,
) -> Result<PreparedAlgorithm, Error> {
    let task = Task::new(device, what, direction, settings)?;
    let prepared = task.prepare(configuration(&algorithm, device, &task.graph)?, algorithm)?;
    if prepared.workspace > WORKSPACE {
        let why = format!(
            "this algorithm needs {} bytes of workspace, but at most {WORKSPACE} are allowed",
            prepared.workspace
        );
        return Err(Error::Unsupported { op: "convolution".into(), why });
    }
    Ok(prepared)
}

impl PreparedAlgorithm {
    /// Enqueues the algorithm after checking the sizes of the tensors and the workspace. `tensors` must be exactly the
    /// graph's tensors.
    pub fn run(
        &self,
        handle: &Handle,
        tensors: &[(Tensor, Slice<'_, u8>)],
        workspace: Slice<'_, u8>,
        op: &str,
    ) -> Result<(), Error> {
        for (name, tensor) in tensors {
            tensor.require(self.sizes[*name as usize - 1], op)?;
        }
        workspace.require(self.workspace, op)?;
        let mut addresses: Vec<u64> = tensors.iter().map(|t| t.1.address()).collect();
        addresses.push(workspace.address());
        let mut pack = self.pack.borrow_mut();
        if pack.as_ref().is_none_or(|(known, _)| *known != addresses) {
            let new = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
            let names: Vec<i64> = tensors.iter().map(|t| t.0 as i64).collect();
            let places: Vec<Address> = tensors.iter().map(|t| Address(t.1.address())).collect();
            new.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &names)?;
            new.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &places)?;
            new.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Address(workspace.address())])?;
            new.finalize("the tensors of a convolution")?;
            *pack = Some((addresses, new));
        }
        let Some((_, pack)) = &*pack else { return Ok(()) };
        // SAFETY: handle, plan and pack are alive. cuDNN rejects a pack that lacks a tensor of the graph. Each tensor
        // is large enough (checked), and the driver frees memory only after the work enqueued on it.
        let status = unsafe { sys::cudnnBackendExecute(handle.raw(), self.plan.raw(), pack.raw()) };
        cudnn(status, "cudnnBackendExecute", op)
    }
}

/// Length of the array for an engine's knobs. cuDNN reports the number of knobs only when it fills the array, so the
/// array must be long enough for all kinds of knobs. cuDNN 9.26 has 46.
const KNOBS: usize = 128;

/// A cuDNN engine: its number and its knobs as (kind, value).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvAlgorithm {
    pub engine: i64,
    pub knobs: Vec<(u32, i64)>,
}

impl ConvAlgorithm {
    /// Returns the algorithm and the engine of a configuration that a heuristic proposed.
    pub fn from_config(config: &Descriptor) -> Result<Option<(Self, Descriptor)>, Error> {
        let engine =
            config.get_all(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, Some(1))?.pop();
        let Some(engine) = engine else { return Ok(None) };
        let mut number = [0i64];
        engine.get(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &mut number)?;
        let choices = config.get_all(
            Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
            Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
            Some(KNOBS),
        )?;
        let read = |choice: &Descriptor| {
            let (mut kind, mut value) = ([Knob(0)], [0i64]);
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &mut kind)?;
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &mut value)?;
            Ok((kind[0].0, value[0]))
        };
        let knobs = choices.iter().map(read).collect::<Result<_, Error>>()?;
        Ok(Some((Self { engine: number[0], knobs }, engine)))
    }

    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let engine = words.next()?.parse().ok()?;
        let knob = |word: &str| {
            let (kind, value) = word.split_once('=')?;
            Some((kind.parse().ok()?, value.parse().ok()?))
        };
        Some(Self { engine, knobs: words.map(knob).collect::<Option<_>>()? })
    }
}

impl fmt::Display for ConvAlgorithm {
    /// Writes the engine, then ` kind=value` for each knob.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.engine)?;
        self.knobs.iter().try_for_each(|(kind, value)| write!(f, " {kind}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_parsed_from_its_own_text() {
        for algorithm in
            [ConvAlgorithm { engine: 58, knobs: vec![(2, -1), (45, 0)] }, ConvAlgorithm { engine: -1, knobs: vec![] }]
        {
            assert_eq!(ConvAlgorithm::parse(&algorithm.to_string()), Some(algorithm));
        }
        for odd in ["", "x", "3 4", "3 4=", "3  4=1"] {
            assert_eq!(ConvAlgorithm::parse(odd), None, "{odd:?}");
        }
    }
}
