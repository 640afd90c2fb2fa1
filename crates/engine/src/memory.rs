//! Plans which tensors share memory. The places of activations and their gradients are assigned once, for the largest
//! batch.
//!
//! A value is a piece of this memory during part of a training step: an activation, a gradient, or a recomputed output.
//! Values are identified by their index in [`Memory::places`].

use std::ops::Range;

use backend::{Error, Keeps, MemoryLimit};
use net::{NetSpec, Op};

/// Everything that the planner must know about a node besides its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Size of the output in f32 words.
    pub elems: usize,
    /// True if the node has no pass. Readers of its output then read its input.
    pub has_no_pass: bool,
    /// True if the node's pass writes no output. The reader then computes the output from the node's first input.
    pub writes_no_output: bool,
    /// Index of the input whose gradient the backward pass writes over the output's gradient, if it works in place.
    pub input_with_gradient_in_dy: Option<usize>,
    /// True if its backward pass accepts two buffers for the output's gradient and adds them itself.
    pub adds_two_gradients: bool,
    /// The forward tensors that its backward pass reads.
    pub tensors_for_backward: Keeps,
    /// True if backward can recompute the node's output, so that it need not be kept.
    pub can_recompute_output: bool,
}

impl NodeFacts {
    /// Returns true if a memory plan for a node with these facts also works for a node with the `other` facts.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let Keeps { inputs, output } = self.tensors_for_backward;
        let kind =
            |of: &Self| (of.has_no_pass, of.writes_no_output, of.input_with_gradient_in_dy, of.adds_two_gradients);
        kind(self) == kind(other)
            && other.elems <= self.elems
            && other.tensors_for_backward.inputs <= inputs
            && (output || !other.tensors_for_backward.output)
            && (other.can_recompute_output || !self.can_recompute_output)
    }
}

/// A step of the backward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackwardStep {
    /// Recomputes the output of a node, because a later backward step reads it and it was not kept.
    Recompute {
        node: usize,
        /// Index of the value that receives the output.
        to: usize,
    },
    /// Adds `from` to `to`. Both are parts of a tensor's gradient.
    Add {
        tensor: usize,
        /// Index of the value that receives the sum.
        to: usize,
        from: usize,
    },
    /// Runs the backward pass of a node.
    Node {
        node: usize,
        /// Index of the value with the gradient of the output.
        dy: usize,
        /// A second part of the output's gradient, if there is one. The node's backward pass adds it to `dy`.
        second: Option<usize>,
        /// For each input, the index of the value that receives its gradient. `None` for the input whose
        /// gradient overwrites `dy` and for the network's input.
        dx: Vec<Option<usize>>,
    },
}

/// The memory plan: values, their places, and the steps of backward.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Size of the shared memory in f32 words.
    pub elems: usize,
    /// The range of each value in the shared memory, in f32 words.
    pub places: Vec<Range<usize>>,
    /// For each tensor, the value that stores it in the forward pass. The input comes first.
    pub tensors: Vec<usize>,
    /// For each tensor, the value that stores it in backward. Only the tensors that [`NodeFacts::tensors_for_backward`] names are
    /// available in backward.
    pub kept: Vec<usize>,
    /// The steps of backward in order. Empty for inference.
    pub backward_steps: Vec<BackwardStep>,
    /// Values for the gradients that the losses write: first for the network's scores, then for the auxiliary
    /// classifiers.
    pub losses: Vec<usize>,
    /// Number of elements in use at the end of the forward pass, in f32 words.
    pub activation_elems: usize,
}

/// The moment for reads after the end of a pass. It is later than all other moments, see [`Values`].
const ALWAYS: usize = usize::MAX;

/// Values with their lifetimes, in moments of a training step. Node i of n nodes runs at moment i in the forward pass.
/// The losses follow at moment n, and backward step m at moment n + 1 + m.
#[derive(Default)]
struct Values(Vec<Lifetime>);

impl Values {
    fn new_at(&mut self, moment: usize, elems: usize) -> usize {
        self.0.push(Lifetime { elems, from: moment, to: moment });
        self.0.len() - 1
    }

    fn used(&mut self, value: usize, moment: usize) {
        self.0[value].to = self.0[value].to.max(moment);
    }
}

/// For each tensor, returns the tensor that holds its gradient. Outputs of nodes without a pass share the gradient of
/// their input.
fn resolve(net: &NetSpec, facts: &[NodeFacts]) -> Vec<usize> {
    through(net, |node| facts[node].has_no_pass)
}

/// For each tensor, returns the tensor whose memory its readers read. This is the tensor itself, except for the output
/// of a node that has no pass or writes no output. Readers of such an output read the memory of the node's first input
/// instead.
fn holders(net: &NetSpec, facts: &[NodeFacts]) -> Vec<usize> {
    through(net, |node| facts[node].has_no_pass || facts[node].writes_no_output)
}

/// For each tensor, walks back from the node that computes it to the node's first input, as long as `passed` is true
/// for the node. Returns the tensor at which each walk ends.
fn through(net: &NetSpec, passed: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut behind = vec![0];
    for (i, node) in net.nodes.iter().enumerate() {
        behind.push(if passed(i) { behind[node.inputs[0].0] } else { i + 1 });
    }
    behind
}

/// The parts of a tensor's gradient that are not added up yet.
#[derive(Clone, Debug, Default)]
struct GradientParts {
    /// Parts in the tensor's own layout. The gradient is the sum of all parts.
    whole: Vec<usize>,
    /// Another part, in the layout of a shortcut's output. The node that computed the tensor reads this part through
    /// the shortcut.
    through: Option<usize>,
}

/// A tensor that a node reads.
#[derive(Clone, Copy, Debug)]
struct Source {
    tensor: usize,
    /// True if the node reads the tensor through a shortcut that has no pass of its own.
    through_shortcut: bool,
}

/// A backward pass while it is being planned.
struct Backward<'a> {
    net: &'a NetSpec,
    facts: &'a [NodeFacts],
    /// For each tensor, the tensor that holds its data.
    holders: &'a [usize],
    values: Values,
    /// For each tensor, the value that stores it in backward. `None` if it must be recomputed first.
    kept: Vec<Option<usize>>,
    /// For each tensor, the parts of its gradient so far.
    pending: Vec<GradientParts>,
    backward_steps: Vec<BackwardStep>,
}

impl Backward<'_> {
    fn now(&self) -> usize {
        self.net.nodes.len() + 1 + self.backward_steps.len()
    }

    /// Records a part of a tensor's gradient. The backward pass of the tensor's node accepts one part, or two parts if
    /// it adds them itself. Further parts are added at once, so a tensor with many readers needs no more memory than a
    /// tensor with two.
    fn add_part(&mut self, tensor: usize, value: usize) {
        self.pending[tensor].whole.push(value);
        self.add(tensor);
    }

    /// Records the part of a tensor's gradient that comes through a shortcut without a pass of its own. `value` is the
    /// gradient of the shortcut's output. The tensor's node computes the part from it.
    fn add_part_through(&mut self, tensor: usize, value: usize) {
        self.pending[tensor].through = Some(value);
        self.add(tensor);
    }

    fn add(&mut self, tensor: usize) {
        let adds = tensor > 0 && self.facts[tensor - 1].adds_two_gradients;
        let GradientParts { mut whole, through } = std::mem::take(&mut self.pending[tensor]);
        while whole.len() > 1 + usize::from(adds && through.is_none()) {
            let (from, now) = (whole.swap_remove(0), self.now());
            [whole[0], from].into_iter().for_each(|value| self.values.used(value, now));
            self.backward_steps.push(BackwardStep::Add { tensor, to: whole[0], from });
        }
        self.pending[tensor] = GradientParts { whole, through };
    }

    /// Makes a tensor available for the next step, if necessary by recomputing it and its sources. Returns the value
    /// that stores it.
    fn ensure_available(&mut self, tensor: usize) -> usize {
        if let Some(value) = self.kept[tensor] {
            return value;
        }
        let node = tensor - 1;
        let sources: Vec<usize> = self.net.nodes[node].inputs.iter().map(|id| self.holders[id.0]).collect();
        let sources: Vec<usize> = sources.into_iter().map(|source| self.ensure_available(source)).collect();
        let now = self.now();
        sources.into_iter().for_each(|value| self.values.used(value, now));
        let to = self.values.new_at(now, self.facts[node].elems);
        self.backward_steps.push(BackwardStep::Recompute { node, to });
        self.kept[tensor] = Some(to);
        to
    }

    /// Makes all forward tensors available that the backward pass of a node reads. Returns their values.
    fn ensure_inputs(&mut self, node: usize) -> Vec<usize> {
        let Keeps { inputs, output } = self.facts[node].tensors_for_backward;
        let inputs = self.net.nodes[node].inputs.iter().take(inputs).map(|id| self.holders[id.0]);
        let tensors: Vec<usize> = inputs.chain(output.then_some(node + 1)).collect();
        tensors.into_iter().map(|tensor| self.ensure_available(tensor)).collect()
    }

    /// Plans the backward pass of a node. `inputs` has `None` for the network's input.
    fn node(&mut self, node: usize, inputs: &[Option<Source>]) {
        let GradientParts { whole, through } = std::mem::take(&mut self.pending[node + 1]);
        let (Some(&dy), second) = (whole.first(), through.or(whole.get(1).copied())) else { return };
        let reads = self.ensure_inputs(node);
        let now = self.now();
        reads.into_iter().chain([dy]).chain(second).for_each(|value| self.values.used(value, now));
        let in_place = self.facts[node].input_with_gradient_in_dy;
        let of_its_own =
            |(i, source): (usize, &Option<Source>)| source.filter(|_| in_place != Some(i)).map(|s| s.tensor);
        let wanted: Vec<Option<usize>> = inputs.iter().enumerate().map(of_its_own).collect();
        let dx: Vec<Option<usize>> =
            wanted.iter().map(|t| t.map(|t| self.values.new_at(now, self.facts[t - 1].elems))).collect();
        self.backward_steps.push(BackwardStep::Node { node, dy, second, dx: dx.clone() });
        wanted.iter().zip(&dx).for_each(|(t, b)| t.iter().zip(b).for_each(|(&t, &b)| self.add_part(t, b)));
        match in_place.and_then(|i| inputs[i]) {
            Some(Source { tensor, through_shortcut: true }) => self.add_part_through(tensor, dy),
            Some(Source { tensor, .. }) => self.add_part(tensor, dy),
            None => {}
        }
    }
}

/// Returns true if a node reads this input through a shortcut without a pass.
fn through_shortcut(net: &NetSpec, facts: &[NodeFacts], node: usize, input: usize) -> bool {
    let maker = net.nodes[node].inputs[input].0.checked_sub(1);
    maker.is_some_and(|maker| facts[maker].has_no_pass && matches!(net.nodes[maker].op, Op::Shortcut(_)))
}

/// Creates the values of the forward pass. Each is in use from the node that writes it to its last reader in this pass.
/// Also returns the value of each tensor, beginning with the input. `runs` says for each node whether it runs. The
/// output of a node that does not run has the value `usize::MAX`.
fn forward(net: &NetSpec, input: usize, facts: &[NodeFacts], runs: &[bool]) -> (Values, Vec<usize>) {
    let mut values = Values::default();
    let mut tensors = vec![values.new_at(0, input)];
    for (i, (node, fact)) in net.nodes.iter().zip(facts).enumerate() {
        let value = match (fact.has_no_pass || fact.writes_no_output, runs[i]) {
            (true, _) => tensors[node.inputs[0].0],
            (false, true) => values.new_at(i, fact.elems),
            (false, false) => usize::MAX,
        };
        tensors.push(value);
        if runs[i] && !fact.has_no_pass {
            node.inputs.iter().for_each(|id| values.used(tensors[id.0], i));
        }
    }
    (values, tensors)
}

impl Memory {
    /// Plans the memory for training. Tensors that backward reads are kept, or recomputed if their operation can do
    /// this cheaply.
    pub fn train(net: &NetSpec, input: usize, facts: &[NodeFacts]) -> Self {
        let (real, holders, n) = (resolve(net, facts), holders(net, facts), net.nodes.len());
        let (mut values, tensors) = forward(net, input, facts, &vec![true; n]);
        let read_after: Vec<usize> = net.scores().chain([net.features().0]).map(|t| real[t]).collect();
        read_after.iter().for_each(|t| values.used(tensors[*t], ALWAYS));
        let is_recomputed = |t: usize| t > 0 && facts[t - 1].can_recompute_output && !read_after.contains(&t);
        let kept = (0..=n).map(|t| (!is_recomputed(t)).then_some(tensors[t])).collect();
        let pending = vec![GradientParts::default(); real.len()];
        let mut back = Backward { net, facts, holders: &holders, values, kept, pending, backward_steps: Vec::new() };
        let mut losses = Vec::new();
        for t in net.scores().map(|t| real[t]) {
            let value = back.values.new_at(n, if t == 0 { input } else { facts[t - 1].elems });
            losses.push(value);
            back.add_part(t, value);
        }
        for node in (0..n).rev().filter(|&n| !facts[n].has_no_pass) {
            let inputs = net.nodes[node].inputs.iter().enumerate().map(|(place, id)| {
                let tensor = Some(real[id.0]).filter(|&t| t != 0)?;
                Some(Source { tensor, through_shortcut: through_shortcut(net, facts, node, place) })
            });
            back.node(node, &inputs.collect::<Vec<_>>());
        }
        let Backward { values, backward_steps, kept, .. } = back;
        let kept = holders.iter().map(|t| kept[*t].unwrap_or(tensors[*t])).collect();
        Self { tensors, kept, backward_steps, losses, ..Self::packed(&values, n) }
    }

    /// Plans the memory for inference, without auxiliary classifiers. The place of a tensor can be used again after its
    /// last reader.
    pub fn infer(net: &NetSpec, input: usize, facts: &[NodeFacts]) -> Self {
        let (mut values, tensors) = forward(net, input, facts, &net.serving());
        // the scores are read after the pass, and sometimes also the features
        [net.nodes.len(), net.features().0].into_iter().for_each(|tensor| values.used(tensors[tensor], ALWAYS));
        Self { kept: tensors.clone(), tensors, ..Self::packed(&values, net.nodes.len()) }
    }

    /// Assigns places to the values. The forward pass ends at moment `end`.
    fn packed(values: &Values, end: usize) -> Self {
        let (places, elems) = pack(&values.0);
        let at_end = values.0.iter().filter(|life| life.from <= end && end <= life.to);
        Self { elems, places, activation_elems: at_end.map(|life| life.elems).sum(), ..Self::default() }
    }
}

/// Device memory of a graph in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    pub parameters: usize,
    pub activations: usize,
    /// Memory that the operations allocate for themselves. It is already allocated when [`Need::check`] runs.
    pub workspace: usize,
}

impl Need {
    /// Calculates the bytes of a graph from the bytes of its parameters and its memory plan. If `train` is set,
    /// `parameters` of the result includes the gradients, which need as many bytes.
    pub fn new(parameters: usize, train: bool, memory: &Memory, workspace: usize) -> Self {
        let parameters = parameters.saturating_mul(1 + usize::from(train));
        let activations = memory.elems.saturating_mul(4);
        Self { parameters, activations, workspace }
    }

    /// Returns the bytes of parameters and activations.
    pub(super) fn bytes(&self) -> usize {
        self.parameters.saturating_add(self.activations)
    }

    /// Returns an error if parameters and activations of `batch` rows need more bytes than the device allows. The error
    /// estimates the number of rows that would fit. Returns no error if `limit` is `None`, because the device does not
    /// know its limit. `trains` is true for the network in training. For its teacher, `training` is the memory of the
    /// network in training, otherwise zero. It is already allocated and not a part of `limit`.
    pub fn check(
        &self,
        net: &NetSpec,
        batch: usize,
        trains: bool,
        training: &Self,
        limit: Option<MemoryLimit>,
    ) -> Result<(), Error> {
        let need = self.bytes();
        let Some(MemoryLimit { bytes: free, text }) = limit.filter(|limit| limit.bytes < need) else { return Ok(()) };
        let mb = |bytes: usize| format!("{:.0} MB", bytes as f64 / 1e6);
        // activations of both networks grow with the batch, parameters do not
        let free = free.saturating_add(training.activations).saturating_sub(self.parameters);
        let activations = self.activations.saturating_add(training.activations).max(1);
        let fits = batch as f64 * free as f64 / activations as f64;
        // in training, a pass computes the images of one worker, also with a teacher
        let fewer = match trains || training.bytes() > 0 {
            true => "a smaller batch, or more workers if the recipe allows them",
            false => "a smaller --batch",
        };
        let advice = match fits as usize {
            0 => "not even one image would fit; use a smaller network or smaller images".into(),
            rows => format!("about {} at a time would fit; try {fewer}", base::text::plural(rows, "image")),
        };
        let in_use = match training.bytes() {
            0 => String::new(),
            bytes => format!(" (the network in training already uses {})", mb(bytes)),
        };
        Err(Error::DeviceMemory {
            what: format!("{} at {batch} images", net.name),
            need: format!(
                "{} (parameters and gradients {}, activations {}), in addition to {} of work space that is already allocated",
                mb(need),
                mb(self.parameters),
                mb(self.activations),
                mb(self.workspace)
            ),
            have: format!("{text}{in_use}; {advice}{}", loaders::memory::limits_cure()),
        })
    }
}

// Assigns each value a place in the shared memory. Values that are in use at the same time do not overlap.

/// Every place begins at a multiple of 64 elements. This 256-byte alignment is enough for vector instructions and GPU
/// libraries.
const UNIT: usize = 64;

/// A value's size, and when it is first and last used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub elems: usize,
    pub from: usize,
    pub to: usize,
}

impl Lifetime {
    fn meets(&self, other: &Lifetime) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// Returns each value's place and the total size in elements. Tries different orders and keeps the best result. Each
/// value goes into the smallest gap that is free during its whole lifetime.
pub(super) fn pack(lives: &[Lifetime]) -> (Vec<Range<usize>>, usize) {
    let least = most_at_once(lives);
    let mut best: Option<(Vec<Range<usize>>, usize)> = None;
    let large_first = |life: &Lifetime| [usize::MAX - life.elems, life.from];
    let long_first = |life: &Lifetime| [usize::MAX - (life.to - life.from), life.from];
    let early_first = |life: &Lifetime| [life.from, usize::MAX - life.to];
    for order in [large_first, long_first, early_first] {
        let mut all: Vec<usize> = (0..lives.len()).collect();
        all.sort_by_key(|i| order(&lives[*i]));
        let found = place(lives, &all);
        if best.as_ref().is_none_or(|best| found.1 < best.1) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|best| best.1 == least) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Returns the elements that a value occupies, including alignment.
fn room(life: &Lifetime) -> usize {
    life.elems.next_multiple_of(UNIT)
}

/// Returns the most elements that are in use at the same moment. No packing needs less memory.
pub(super) fn most_at_once(lives: &[Lifetime]) -> usize {
    let at = |moment: usize| lives.iter().filter(|life| life.from <= moment && moment <= life.to).map(room).sum();
    // the maximum is reached at a moment at which some value begins
    let mut begins: Vec<usize> = lives.iter().map(|life| life.from).collect();
    begins.sort_unstable();
    begins.dedup();
    begins.into_iter().map(at).max().unwrap_or(0)
}

fn place(lives: &[Lifetime], order: &[usize]) -> (Vec<Range<usize>>, usize) {
    let mut places = vec![0..0; lives.len()];
    // indices of the values that have a place, sorted by place
    let mut placed: Vec<usize> = Vec::new();
    let mut elems = 0;
    for &i in order {
        let life = &lives[i];
        let start = gap(room(life), placed.iter().filter(|j| lives[**j].meets(life)).map(|j| &places[*j]));
        places[i] = start..start + life.elems;
        elems = elems.max(start + room(life));
        let at = placed.partition_point(|j| places[*j].start <= start);
        placed.insert(at, i);
    }
    (places, elems)
}

/// Returns where the smallest gap between the ranges that holds `elems` elements begins. If there is no such gap,
/// returns the first place after the ranges. `taken` must be sorted by start.
fn gap<'a>(elems: usize, taken: impl Iterator<Item = &'a Range<usize>>) -> usize {
    let (mut best, mut end) = (None, 0);
    for range in taken {
        let free = range.start.saturating_sub(end);
        if free >= elems && best.is_none_or(|(least, _)| free < least) {
            best = Some((free, end));
        }
        end = end.max(range.end.next_multiple_of(UNIT));
    }
    best.map_or(end, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    use net::Shape;

    #[test]
    fn out_of_memory_errors_suggest_a_batch_that_fits() {
        let net = NetSpec::new("net", Shape::vector(1));
        let need = Need { parameters: 40_000_000, activations: 960_000_000, workspace: 7_000_000 };
        let first = Need::default();
        assert!(need.check(&net, 96, true, &first, None).is_ok());
        let limit = |bytes: usize| Some(MemoryLimit { bytes, text: format!("{} MB are free", bytes / 1_000_000) });
        assert!(need.check(&net, 96, true, &first, limit(1_000_000_000)).is_ok());
        let refused = |trains, training: &Need, free, parts: [&str; 3]| {
            let error = need.check(&net, 96, trains, training, limit(free)).unwrap_err();
            let Error::DeviceMemory { what, need, have } = &error else { panic!("{error}") };
            assert_eq!(what, "net at 96 images");
            assert!(
                ["1000 MB", "gradients 40 MB", "activations 960 MB", "7 MB"].iter().all(|part| need.contains(part)),
                "{need}"
            );
            parts.iter().for_each(|part| assert!(have.contains(part), "expected {part:?} in: {have}"));
        };
        refused(true, &first, 540_000_000, ["540 MB", "50 images", "try a smaller batch, or more workers"]);
        refused(false, &first, 540_000_000, ["540 MB", "50 images", "try a smaller --batch"]);
        refused(true, &first, 30_000_000, ["30 MB are free;", "not even one", "smaller network or smaller images"]);
        // a smaller batch also makes the network in training smaller: 96 * (540 + 400 - 40) / (960 + 400) images
        let training = Need { parameters: 200_000_000, activations: 400_000_000, workspace: 0 };
        let used = "540 MB are free (the network in training already uses 600 MB);";
        refused(false, &training, 540_000_000, [used, "63 images", "try a smaller batch, or more workers"]);
        assert!(need.check(&net, 96, false, &training, limit(1_000_000_000)).is_ok());
    }

    fn life(elems: usize, from: usize, to: usize) -> Lifetime {
        Lifetime { elems, from, to }
    }

    /// Packs the values and returns the total size in elements. Checks that values in use at the same time do not
    /// overlap.
    fn checked(lives: &[Lifetime]) -> usize {
        let (places, elems) = pack(lives);
        for (i, (a, place)) in lives.iter().zip(&places).enumerate() {
            assert_eq!((place.len(), place.start % UNIT), (a.elems, 0));
            assert!(place.end <= elems);
            for (b, other) in lives.iter().zip(&places).take(i) {
                assert!(!a.meets(b) || place.end <= other.start || other.end <= place.start, "{a:?} {b:?}");
            }
        }
        assert!(elems >= most_at_once(lives));
        elems
    }

    #[test]
    fn values_with_disjoint_lifetimes_share_memory() {
        assert_eq!(checked(&[]), 0);
        assert_eq!(checked(&[life(64, 0, 1), life(64, 2, 3), life(128, 4, 4)]), 128);
        assert_eq!(checked(&[life(64, 0, 2), life(64, 2, 3)]), 128, "both are in use at moment 2");
        // two small values use the place of a large value that is no longer needed
        assert_eq!(checked(&[life(640, 0, 3), life(320, 4, 9), life(320, 5, 8), life(64, 0, 9)]), 704);
        assert_eq!(checked(&[life(1, 0, 0), life(65, 0, 0)]), 192, "places begin at multiples of the unit");
    }

    #[test]
    fn nested_lifetimes_need_little_more_than_the_peak() {
        // Like activations and their gradients, values begin one after another and end in the opposite order.
        let n = 40;
        let kept = (0..n).map(|i| life(1000 + 64 * i * i % 7777, i, 2 * n - i));
        let passing = (0..n).map(|i| life(1000 + 64 * (n - i) * (n - i) % 7777, n + i, n + i + 1));
        let lives: Vec<Lifetime> = kept.chain(passing).collect();
        let (elems, least) = (checked(&lives), most_at_once(&lives));
        assert!(elems * 100 <= least * 110, "{elems} of at least {least}");
    }
}
