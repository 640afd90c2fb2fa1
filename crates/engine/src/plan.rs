//! Plans the operations of a network for one batch size. Also finds properties of the network that can be known before
//! memory is allocated, such as tensors that are read only once.

use std::collections::BTreeMap;

use backend::{Backend, DrawKey, Error, Keeps, PlanRequest, Planned, ReadThrough, ShapedShortcut, Slot, TensorDesc};
use net::{NetSpec, Node, Op, ParamSpec, Shape};

use super::memory::{BackwardStep, Memory, NodeFacts};
use super::params::{FrozenPlan, Layout, NormPlace};
use super::request::Batch;

/// The parts of a network's plan that never change after the start.
pub(super) struct NetworkPlan<B: Backend> {
    pub net: NetSpec,
    /// For each node, true if the network's scores depend on it.
    pub serving: Vec<bool>,
    pub seed: u64,
    /// True if the plan includes backward passes.
    pub trains: bool,
    pub layout: Layout<B>,
    /// The places of each node's parameters in the arenas.
    pub slots: Vec<Vec<Slot>>,
    pub norms: Vec<NormPlace>,
    pub memory: Memory,
    /// The parts of the plan that are different while the network's frozen parameters are not trained.
    pub freeze: FrozenPlan,
}

impl<B: Backend> NetworkPlan<B> {
    /// Returns the steps of the backward pass. `frozen` is true while the network's frozen parameters are not trained.
    pub fn backward_steps(&self, frozen: bool) -> &[BackwardStep] {
        if frozen { &self.freeze.backward_steps } else { &self.memory.backward_steps }
    }

    /// Returns the value that stores a tensor during the forward pass.
    pub fn value_of(&self, tensor: usize) -> usize {
        self.memory.tensors[tensor]
    }

    pub fn formats(&self) -> Vec<Vec<B::Format>> {
        let of = |node| self.layout.params.iter().filter(|p| p.node == node).map(|p| p.format.clone()).collect();
        (0..self.net.nodes.len()).map(of).collect()
    }

    pub fn key<'a>(&self, batch: &Batch<'a>) -> DrawKey<'a> {
        DrawKey { seed: self.seed, epoch: batch.epoch, ids: batch.ids }
    }
}

/// The operations for a batch size. Nodes without a pass have `None`: they rename their input, or they are shortcuts
/// and the batch norms around them do their work.
pub(super) type Operations<B> = Vec<Option<Box<dyn Planned<B>>>>;

/// The plans for one image size.
pub(super) struct SizePlans<B: Backend> {
    /// Logical shape of every tensor. The input comes first.
    pub shapes: Vec<Shape>,
    /// Memory layout of every tensor. The input comes first.
    pub descs: Vec<TensorDesc>,
    /// Operations by batch size.
    pub operations: BTreeMap<usize, Operations<B>>,
}

impl<B: Backend> SizePlans<B> {
    /// Returns the memory layout of a tensor for a batch of `rows` images.
    pub fn desc(&self, tensor: usize, rows: usize) -> TensorDesc {
        TensorDesc { n: rows, ..self.descs[tensor] }
    }

    pub fn largest(&self) -> Option<&Operations<B>> {
        self.operations.values().next_back()
    }
}

/// Returns everything that the memory plan needs to know about a node.
pub(super) fn facts<B: Backend>(
    backend: &B,
    planned: Option<&(dyn Planned<B> + 'static)>,
    desc: &TensorDesc,
) -> NodeFacts {
    NodeFacts {
        elems: backend.words(desc),
        has_no_pass: planned.is_none(),
        writes_no_output: planned.is_some_and(|p| !p.writes_output()),
        input_with_gradient_in_dy: planned.and_then(|p| p.input_with_gradient_in_dy()),
        adds_two_gradients: planned.is_some_and(|p| p.adds_two_gradients()),
        tensors_for_backward: planned.map_or(Keeps::NOTHING, |p| p.tensors_for_backward()),
        can_recompute_output: planned.is_some_and(|p| p.can_recompute_output()),
    }
}

pub(super) fn param_specs(net: &NetSpec, shapes: &[Shape]) -> Vec<Vec<ParamSpec>> {
    net.nodes.iter().map(|n| n.op.params(shapes[n.inputs[0].0])).collect()
}

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

/// Returns the initial running statistics: mean 0 and variance 1.
pub(super) fn initial_running(norms: &[NormPlace]) -> Vec<f32> {
    norms.iter().flat_map(|n| [vec![0.0; n.channels], vec![1.0; n.channels]].concat()).collect()
}

/// Adds the names of layer, operation and device to an error about something that the backend does not support. Returns
/// other errors unchanged.
fn refused<B: Backend>(backend: &B, node: &Node, error: Error) -> Error {
    let Error::Unsupported { op, why } = error else { return error };
    let what = if op == node.name { why } else { format!("{op}: {why}") };
    let device = backend.describe();
    let device = device.split([' ', ',']).next().unwrap_or_default();
    Error::Unsupported { op: node.name.clone(), why: format!("{} on {device}: {what}", node.op.kind()) }
}

/// The choices of the first plan that later plans must repeat: the formats of each node's parameters, and the layout of
/// every tensor.
pub(super) type FirstPlan<'a, F> = (&'a [Vec<F>], &'a [TensorDesc]);

/// Plans every node for batches of `batch` images. If `first` is given, repeats the choices of the first plan. Also
/// returns the layout of every tensor, beginning with the input.
pub(super) fn make_plan<B: Backend>(
    backend: &B,
    net: &NetSpec,
    shapes: &[Shape],
    batch: usize,
    first: Option<FirstPlan<'_, B::Format>>,
    train: bool,
) -> Result<(Operations<B>, Vec<TensorDesc>), Error> {
    let mut descs = vec![backend.input(batch, shapes[0])];
    let mut plan: Operations<B> = Vec::new();
    let shortcuts = Shortcuts::new(backend, net, shapes);
    // All plans use bf16 for the same tensors as the first one, because sums of gradients and copies to the host use
    // the first plan's layouts.
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
            bn_groups: net.bn_groups,
            input_fusion: fusions[node.inputs[0].0].as_ref(),
            output_fusion: fusions[i + 1].as_ref(),
            may_write_bf16: narrow[i + 1],
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

// Fusions. An operation may share work with the only reader of its output, or write bf16 if all readers accept it.

/// For each tensor, beginning with the input: true if exactly one operation reads it, as its first input, and nothing
/// reads it after the pass. False for the network's input, and for tensors that are written or read by an operation
/// that only renames.
pub(super) fn read_once(net: &NetSpec) -> Vec<bool> {
    let after: Vec<usize> = net.scores().chain([net.features().0]).collect();
    let once = |tensor: usize| {
        let &[(reader, 0)] = net.readers(tensor).as_slice() else { return false };
        let made = |node: usize| !net.nodes[node].op.renames();
        tensor.checked_sub(1).is_some_and(made) && made(reader) && !after.contains(&tensor)
    };
    (0..=net.nodes.len()).map(once).collect()
}

/// For each tensor, beginning with the input: true if at least one operation reads it, all these operations accept
/// bf16, and nothing reads it after the pass.
pub(super) fn read_in_bf16<B: Backend>(backend: &B, net: &NetSpec) -> Vec<bool> {
    let after: Vec<usize> = net.scores().chain([net.features().0]).collect();
    let all = |tensor: usize| {
        let readers = net.readers(tensor);
        let takes = |&(node, input): &(usize, usize)| backend.reads_bf16(&net.nodes[node].op, input);
        !readers.is_empty() && !after.contains(&tensor) && readers.iter().all(takes)
    };
    (0..=net.nodes.len()).map(all).collect()
}

// Shortcuts that need no pass of their own, because the batch norms around them do their work. In the forward pass, the
// norm after such a shortcut reads its residual directly from the shortcut's input. In the backward pass, the norm
// before it adds the gradient of the shortcut's output to the gradient of its own output.

/// The shortcuts that need no pass of their own.
pub(super) struct Shortcuts {
    /// For each node, the shortcuts that it replaces.
    pub through: Vec<ReadThrough>,
    /// For each node, true if it is a shortcut without a pass of its own.
    pub passed_over: Vec<bool>,
}

impl Shortcuts {
    pub fn new<B: Backend>(backend: &B, net: &NetSpec, shapes: &[Shape]) -> Self {
        let nodes = net.nodes.len();
        let mut all = Self { through: vec![ReadThrough::default(); nodes], passed_over: vec![false; nodes] };
        for (node, reads) in net.nodes.iter().enumerate() {
            let Op::Shortcut(shortcut) = reads.op else { continue };
            let of = ShapedShortcut { shortcut, x: shapes[reads.inputs[0].0] };
            if let Some((before, behind)) = neighbours(net, node).filter(|_| backend.reads_through(&of)) {
                all.through[before].second = Some(of);
                all.through[behind].residual = Some(of);
                all.passed_over[node] = true;
            }
        }
        all
    }
}

/// Returns the batch norms before and after a shortcut, if both can do its work. The norm after it must be its only
/// reader and use it as the residual. The output of the norm before it must have another reader, so that its gradient
/// has a second part. Its other readers must not be shortcuts or operations that only rename.
fn neighbours(net: &NetSpec, shortcut: usize) -> Option<(usize, usize)> {
    let x = net.nodes[shortcut].inputs[0].0;
    let is_norm = |node: &usize| matches!(net.nodes[*node].op, Op::Norm(_));
    let before = x.checked_sub(1).filter(is_norm)?;
    let &[(behind, 1)] = net.readers(shortcut + 1).as_slice() else { return None };
    let mut others =
        net.readers(x).into_iter().filter(|(node, _)| *node != shortcut).map(|(node, _)| &net.nodes[node].op);
    let (first, plain) = (others.next()?, |op: &Op| !op.renames() && !matches!(op, Op::Shortcut(_)));
    (is_norm(&behind) && plain(first) && others.all(plain)).then_some((before, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    use net::Shape;
    use net::{Conv, Flatten, Id, Linear, Norm, Shortcut};

    /// Builds a residual block and a classifier, and returns the tensors that are read once. `more` can change the
    /// network.
    fn tensors(more: impl FnOnce(&mut NetSpec)) -> Vec<usize> {
        let mut net = NetSpec::new("block", Shape::image(3, 4, 4));
        let x = net.add("conv1", Conv::new(8, 3).pad(1), net.image());
        let x = net.add("bn1", Norm::new().relu(), x);
        let y = net.add("conv2", Conv::new(8, 3).pad(1), x);
        let y = net.add("bn2", Norm::new().relu(), y);
        let y = net.add("conv3", Conv::new(8, 3).pad(1), y);
        let x = net.join("bn3", Norm::new().residual(), &[y, x]);
        let x = net.add("flatten", Flatten, x);
        net.add("fc", Linear::new(4), x);
        more(&mut net);
        let found = read_once(&net);
        (0..found.len()).filter(|tensor| found[*tensor]).collect()
    }

    #[test]
    fn only_tensors_with_a_single_reader_can_be_fused() {
        // The remaining tensors cannot be fused: no operation writes the image (0), two operations read the block's input (2), 6
        // and 7 are the two names of the flattened tensor, and the scores (8) are read after the pass.
        assert_eq!(tensors(|_| ()), [1, 3, 4, 5]);
        assert_eq!(tensors(|net| net.head(Id(3), 0.5)), [1, 4, 5]);
        assert_eq!(tensors(|net| net.nodes[6].inputs = vec![Id(6), Id(5)]), [1, 3, 4]);
        // Without the end of the block, its input is read once. The output of the last norm is read after the pass, as
        // features.
        assert_eq!(tensors(|net| net.nodes.truncate(5)), [1, 2, 3]);
    }

    /// Builds a norm, a convolution and a shortcut that read it, and a norm that reads both. Returns the norms around
    /// the shortcut. `more` can change the network.
    fn block(more: impl FnOnce(&mut NetSpec)) -> Option<(usize, usize)> {
        let mut net = NetSpec::new("block", Shape::image(3, 8, 8));
        let x = net.add("conv1", Conv::new(16, 3).pad(1), net.image());
        let x = net.add("bn1", Norm::new().relu(), x);
        let y = net.add("conv2", Conv::new(32, 3).pad(1).stride(2), x);
        let x = net.add("shortcut", Shortcut { out_channels: 32, stride: 2 }, x);
        net.join("bn2", Norm::new().residual(), &[y, x]);
        more(&mut net);
        neighbours(&net, 3)
    }

    #[test]
    fn a_shortcut_is_fused_only_between_two_norms() {
        use net::Id;
        assert_eq!(block(|_| ()), Some((1, 4)));
        assert_eq!(block(|net| _ = net.add("conv3", Conv::new(4, 1), Id(2))), Some((1, 4)));
        // another node reads the shortcut's output, or a second shortcut reads the same norm
        assert_eq!(block(|net| net.nodes[4].inputs[0] = Id(4)), None);
        assert_eq!(block(|net| _ = net.add("shortcut2", Shortcut { out_channels: 16, stride: 2 }, Id(2))), None);
        // the node before or after the shortcut is not a norm
        assert_eq!(block(|net| net.nodes[3].inputs[0] = Id(1)), None);
        assert_eq!(block(|net| net.nodes[4].op = net::Add.into()), None);
        // the norm's output has no reader besides shortcuts
        assert_eq!(block(|net| net.nodes[2].op = Shortcut { out_channels: 32, stride: 2 }.into()), None);
    }
}
