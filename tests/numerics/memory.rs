//! Memory plans. No value is overwritten before its last reader, recomputing outputs in backward changes no bit of the
//! gradients, and large networks stay within their limits.

use std::ops::Range;

use backend::cpu::Cpu;
use backend::cuda::Precision;
use backend::reference::Reference;
use backend::{Backend, Buffer, DeviceMemory, Error, Input, Keeps};
use engine::memory::{BackwardStep, Memory, NodeFacts};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose, estimate};
use net::{Id, NetSpec, Shape, models};

use crate::training::{self, attentive, bottleneck, branching, dense, patches, separable};
use support::numerics::{self, cpu, noise};

fn network(name: &str, size: usize) -> NetSpec {
    models::build(name, Shape::image(3, size, size), 10).unwrap_or_else(|| panic!("no {name}"))
}

/// Returns networks of all families: residual, dense, branches with auxiliary classifiers, squeeze and excitation, plain.
fn families() -> Vec<NetSpec> {
    let small = [branching(false), separable(), bottleneck(), dense(), attentive(), patches()];
    let large = [
        ("resnet20", 32),
        ("resnet50", 64),
        ("densenet121", 64),
        ("googlenet", 112),
        ("mobilenet_v3_small", 64),
        ("efficientnet_b0", 64),
        ("convnext_tiny", 64),
        ("vgg11", 64),
    ];
    small.into_iter().chain(large.map(|(name, size)| network(name, size))).collect()
}

/// The simulated contents of the memory: ranges, each with the number of the value that is stored there.
#[derive(Default)]
struct MemoryContents(Vec<(Range<usize>, usize)>);

impl MemoryContents {
    /// Writes a value. Values that it overlaps are lost.
    fn write(&mut self, memory: &Memory, value: usize) {
        let place = &memory.places[value];
        assert!(place.end <= memory.elems);
        self.0.retain(|(other, _)| other.end <= place.start || place.end <= other.start);
        self.0.push((place.clone(), value));
    }

    fn read(&self, value: usize, what: &str) {
        assert!(self.0.iter().any(|(_, held)| *held == value), "{what}: value {value} was overwritten");
    }
}

/// Checks a training plan by simulating its reads and writes, without computing values.
fn follow(net: &NetSpec, facts: &[NodeFacts], memory: &Memory) {
    let mut held = MemoryContents::default();
    held.write(memory, memory.tensors[0]);
    for (i, node) in net.nodes.iter().enumerate().filter(|(i, _)| !facts[*i].has_no_pass) {
        node.inputs.iter().for_each(|id| held.read(memory.tensors[id.0], &format!("forward of {}", node.name)));
        match facts[i].writes_no_output {
            true => assert_eq!(memory.tensors[i + 1], memory.tensors[node.inputs[0].0], "{}", node.name),
            false => held.write(memory, memory.tensors[i + 1]),
        }
    }
    for (scores, gradient) in net.scores().zip(&memory.losses) {
        held.read(memory.tensors[scores], "the loss");
        held.write(memory, *gradient);
    }
    for step in &memory.backward_steps {
        match step {
            BackwardStep::Recompute { node, to } => {
                let what = format!("{} made anew", net.nodes[*node].name);
                net.nodes[*node].inputs.iter().for_each(|id| held.read(memory.kept[id.0], &what));
                held.write(memory, *to);
                assert_eq!(memory.kept[node + 1], *to, "{what}");
            }
            BackwardStep::Add { to, from, .. } => [to, from].into_iter().for_each(|value| held.read(*value, "a sum")),
            BackwardStep::Node { node, dy, second, dx } => {
                let (what, kept) =
                    (format!("backward of {}", net.nodes[*node].name), facts[*node].tensors_for_backward);
                let read = |value: usize| held.read(value, &what);
                net.nodes[*node].inputs.iter().take(kept.inputs).for_each(|id| read(memory.kept[id.0]));
                kept.output.then(|| read(memory.kept[node + 1]));
                [Some(*dy), *second].into_iter().flatten().for_each(read);
                dx.iter().flatten().for_each(|value| held.write(memory, *value));
                // the node's writes must not have overwritten its own inputs
                net.nodes[*node].inputs.iter().take(kept.inputs).for_each(|id| held.read(memory.kept[id.0], &what));
                [Some(*dy), *second].into_iter().flatten().for_each(|value| held.read(value, &what));
            }
        }
    }
    held.read(memory.tensors[net.nodes.len()], "the scores afterwards");
}

#[test]
fn no_value_is_overwritten_before_its_last_reader() {
    for net in families() {
        let (facts, memory, _) = estimate::memory(&cpu(1), &net, 2).unwrap();
        follow(&net, &facts, &memory);
        let (facts, memory, _) = estimate::memory(&Reference, &net, 2).unwrap();
        follow(&net, &facts, &memory);
    }
}

/// Returns the gradients of all parameters after two passes over different rows.
fn gradients<B: Backend>(backend: B, net: &NetSpec) -> Vec<Vec<f32>> {
    let rows = 4;
    let mut graph = Graph::new(backend, net.clone(), rows, Purpose::Train { bucket_bytes: 1 << 16 }, 7).unwrap();
    for pass in 0..2u32 {
        let images = noise(rows * net.input.elems(), u64::from(pass), 1.0);
        let ids: Vec<u64> = (0..rows as u64).collect();
        let batch = Batch { images: Input::Values(&images), labels: &[0, 3, 1, 4], ids: &ids, epoch: pass };
        let loss = Loss { smoothing: 0.1, scale: 0.25 };
        graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap();
    }
    training::gradients(&graph)
}

#[test]
fn recomputed_outputs_do_not_change_the_gradients() {
    for net in families() {
        let [anew, kept] = [cpu(2), cpu(2).without_recomputation()].map(Cpu::unfused).map(|cpu| gradients(cpu, &net));
        assert!(anew == kept, "{}", net.name);
    }
}

#[test]
fn recomputed_outputs_take_no_memory_before_backward() {
    for (net, rows) in [(network("resnet20", 32), 8), (network("resnet50", 64), 2), (network("densenet121", 64), 2)] {
        let memory = |cpu: Cpu| estimate::memory(&cpu, &net, rows).unwrap().1;
        let [anew, kept] = [cpu(1), cpu(1).without_recomputation()].map(|cpu| memory(cpu.unfused()));
        // if a norm is fused into the next convolution, its output is neither kept nor recomputed
        let fused = memory(cpu(1));
        assert!(fused.elems <= anew.elems && fused.backward_steps.len() <= anew.backward_steps.len(), "{}", net.name);
        let made = anew.backward_steps.iter().filter(|step| matches!(step, BackwardStep::Recompute { .. })).count();
        assert!(made > 5 && anew.elems * 100 < kept.elems * 90, "{}: {} of {}", net.name, anew.elems, kept.elems);
        assert!(!kept.backward_steps.iter().any(|step| matches!(step, BackwardStep::Recompute { .. })));
    }
}

/// The plan counts more than the resident memory, because not every byte is touched. These limits keep the peak
/// resident sets below 1,500 and 180 MB.
#[test]
fn large_networks_stay_within_their_bounds() {
    for (name, size, classes, rows, most) in [("resnet50", 224, 1000, 16, 1490), ("resnet20", 32, 10, 128, 155)] {
        let net = models::build(name, Shape::image(3, size, size), classes).expect("a network of the catalogue");
        let need = estimate::training(&cpu(2), &net, rows).unwrap();
        // the optimizer's momentum takes half as much as parameters and gradients
        let all = need.parameters + need.parameters / 2 + need.activations + need.workspace;
        assert!(all <= most * 1_000_000, "{name}: {need:?}, {all} bytes");
    }
}

/// Values written to a part of a region are still there when the part is taken again. Taking a part that overlaps
/// another part in use must fail. `shared` says whether overlapping parts have the same memory on this device.
fn check_parts<D: DeviceMemory>(device: &D, shared: bool) {
    let parts = [0..64, 64..192, 32..96];
    let region = device.region(192, &parts).unwrap();
    for (at, value) in parts.iter().zip([1.0, 2.0]) {
        let mut part = region.take(at).unwrap();
        assert_eq!(part.len(), at.len());
        part.write(0, &vec![value; at.len()]).unwrap();
        region.give(at, part);
    }
    let [first, second] = [0, 1].map(|i| region.take(&parts[i]).unwrap());
    let mut got = vec![0.0; 64];
    first.read(0, &mut got).unwrap();
    assert!(got.iter().all(|x| *x == 1.0));
    for (at, used) in [(&parts[2], "0..64"), (&parts[0], "0..64"), (&(100..101), "64..192")] {
        let error = region.take(at).err().expect("an overlap");
        let Error::Size { expected, got, .. } = &error else { panic!("{error}") };
        assert!(expected.contains(used) && *got == format!("{at:?}"), "{error}");
    }
    region.give(&parts[0], first);
    assert!(region.take(&parts[2]).is_err(), "a part that overlaps one in use must not be taken");
    region.give(&parts[1], second);
    assert!(region.take(&(100..193)).is_err(), "a part beyond the end must not be taken");
    let across = region.take(&parts[2]).unwrap();
    across.read(0, &mut got).unwrap();
    let (first, second) = got.split_at(32);
    let want = if shared { [1.0, 2.0] } else { [0.0, 0.0] };
    assert!(first.iter().all(|x| *x == want[0]) && second.iter().all(|x| *x == want[1]));
    region.give(&parts[2], across);
    region.take(&parts[1]).unwrap();
}

#[test]
fn parts_keep_their_values_and_never_overlap() {
    check_parts(&cpu(1), true);
    check_parts(&Reference, false);
    check_parts(&numerics::cuda(Precision::F32), true);
}

#[test]
fn features_outlive_what_follows_the_last_layer() {
    for name in ["squeezenet1_1", "airbench94", "resnet18"] {
        let net = models::build(name, Shape::image(3, 64, 64), 10).unwrap();
        let shapes = net.shapes().unwrap();
        let facts = |at: usize| NodeFacts {
            elems: shapes[at + 1].elems(),
            has_no_pass: net.nodes[at].op.renames(),
            writes_no_output: false,
            input_with_gradient_in_dy: None,
            adds_two_gradients: false,
            tensors_for_backward: Keeps::NOTHING,
            can_recompute_output: false,
        };
        let facts: Vec<NodeFacts> = (0..net.nodes.len()).map(facts).collect();
        let memory = Memory::infer(&net, shapes[0].elems(), &facts);
        let Id(features) = net.features();
        let later = (features + 1..memory.tensors.len()).filter(|&tensor| !facts[tensor - 1].has_no_pass);
        assert!(later.clone().count() > 0, "{name}");
        let place = |tensor: usize| memory.places[memory.tensors[tensor]].clone();
        let apart =
            |tensor: usize| place(tensor).end <= place(features).start || place(features).end <= place(tensor).start;
        later.for_each(|tensor| assert!(apart(tensor), "{name}: {tensor}"));
    }
}
