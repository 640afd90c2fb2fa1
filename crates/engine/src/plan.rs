//! The operations of a network for one batch size, and facts that follow from its description before memory is allocated.

use std::collections::BTreeMap;

use backend::{Backend, Error, Keeps, PlanRequest, Planned, TensorDesc};
use net::{NetSpec, Node};
use net::{ParamSpec, Shape};

use super::fusions::{read_in_bf16, read_once};
use super::memory::NodeFacts;
use super::norm_place::NormPlace;
use super::shortcuts::Shortcuts;

/// The operations of one batch size; renamed tensors have none, nor have shortcuts that norms read through.
pub(super) type Plan<B> = Vec<Option<Box<dyn Planned<B>>>>;

/// What depends on the size of the images.
pub(super) struct OfSize<B: Backend> {
    /// Logical shape of every tensor, input first.
    pub shapes: Vec<Shape>,
    /// How each lies in memory.
    pub descs: Vec<TensorDesc>,
    /// By rows.
    pub plans: BTreeMap<usize, Plan<B>>,
}

/// What the memory plan must know of a node.
pub(super) fn facts<B: Backend>(
    backend: &B,
    planned: Option<&(dyn Planned<B> + 'static)>,
    desc: &TensorDesc,
) -> NodeFacts {
    NodeFacts {
        elems: backend.words(desc),
        looked_through: planned.is_none(),
        unwritten: planned.is_some_and(|p| !p.writes()),
        alias: planned.and_then(|p| p.alias()),
        adds: planned.is_some_and(|p| p.adds()),
        keeps: planned.map_or(Keeps::NOTHING, |p| p.keeps()),
        recomputes: planned.is_some_and(|p| p.recomputes()),
    }
}

/// Parameters of every node.
pub(super) fn param_specs(net: &NetSpec, shapes: &[Shape]) -> Vec<Vec<ParamSpec>> {
    net.nodes.iter().map(|n| n.op.params(shapes[n.inputs[0].0])).collect()
}

/// Places of the running statistics.
pub(super) fn norm_places(net: &NetSpec, shapes: &[Shape]) -> Vec<NormPlace> {
    let mut offset = 0;
    let norms = net.nodes.iter().enumerate().filter(|(_, n)| n.op.statistics_momentum().is_some());
    norms
        .map(|(node, _)| {
            let channels = shapes[node + 1].c;
            offset += 2 * channels;
            NormPlace { node, channels, offset: offset - 2 * channels }
        })
        .collect()
}

/// Mean 0, variance 1.
pub(super) fn initial_running(norms: &[NormPlace]) -> Vec<f32> {
    norms.iter().flat_map(|n| [vec![0.0; n.channels], vec![1.0; n.channels]].concat()).collect()
}

/// What a backend does not run is named by layer, operation and backend; other errors are what they are.
fn refused<B: Backend>(backend: &B, node: &Node, error: Error) -> Error {
    let Error::Unsupported { op, why } = error else { return error };
    let what = if op == node.name { why } else { format!("{op}: {why}") };
    let device = backend.describe();
    let device = device.split([' ', ',']).next().unwrap_or_default();
    Error::Unsupported { op: node.name.clone(), why: format!("{} on {device}: {what}", node.op.kind()) }
}

/// What later plans take from the first one: each parameter's format, node by node, and every tensor's layout.
pub(super) type First<'a, F> = (&'a [Vec<F>], &'a [TensorDesc]);

/// Plans every node for `batch` rows; also returns the layout of every tensor, input first.
pub(super) fn make_plan<B: Backend>(
    backend: &B,
    net: &NetSpec,
    shapes: &[Shape],
    batch: usize,
    first: Option<First<'_, B::Format>>,
    train: bool,
) -> Result<(Plan<B>, Vec<TensorDesc>), Error> {
    let mut descs = vec![backend.input(batch, shapes[0])];
    let mut plan: Plan<B> = Vec::new();
    let shortcuts = Shortcuts::new(backend, net, shapes);
    // what one plan narrows, all do: gradients are summed and tensors read as the first one has them
    let narrow = match first {
        Some((_, descs)) => descs.iter().map(|desc| desc.bf16).collect(),
        None => read_in_bf16(backend, net),
    };
    let fusions: Vec<Option<B::Fusion>> = read_once(net).into_iter().map(|once| once.then(Default::default)).collect();
    for (i, node) in net.nodes.iter().enumerate() {
        let x: Vec<TensorDesc> = node.inputs.iter().map(|id| descs[id.0]).collect();
        if node.op.renames() {
            descs.push(x[0]);
            plan.push(None);
            continue;
        }
        let logical: Vec<Shape> = node.inputs.iter().map(|id| shapes[id.0]).collect();
        let request = PlanRequest {
            name: &node.name,
            op: &node.op,
            shapes: &logical,
            x: &x,
            through: shortcuts.through[i],
            before: fusions[node.inputs[0].0].as_ref(),
            behind: fusions[i + 1].as_ref(),
            may_narrow: narrow[i + 1],
            train,
            wants_dx: node.inputs[0].0 != 0,
            formats: first.map(|(formats, _)| formats[i].as_slice()),
            index: i as u16,
        };
        let planned = backend.plan(&request).map_err(|error| refused(backend, node, error))?;
        descs.push(planned.output());
        plan.push((!shortcuts.passed_over[i]).then_some(planned));
    }
    Ok((plan, descs))
}
