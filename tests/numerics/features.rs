//! The input of the last layer, which `predict --embed` writes.

use backend::Keeps;
use engine::memory::{Memory, NodeFacts};
use net::{Id, Shape, models};

/// The memory plan keeps the input of the last layer to the end, even if other operations follow this layer.
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
