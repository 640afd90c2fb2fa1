//! The number of bytes that the plan counts for a GPU step, compared with what its passes must read and write.

use backend::Traffic;
use backend::cuda::Precision;
use engine::{Graph, Purpose, TrafficShare};
use net::{Op, models};

use support::gpu::alone;
use support::numerics::cuda;

/// Batch size. All traffic of batch normalisation is proportional to it.
const IMAGES: usize = 2;

#[test]
fn batch_norm_of_resnet50_moves_what_its_passes_need() {
    let _alone = alone();
    let cuda = cuda(Precision::Bf16);
    let input = models::input("resnet50").expect("a size");
    let net = models::build("resnet50", input, 1000).expect("a network");
    let shapes = net.shapes().expect("shapes");
    // elements per image of the norms without and with a residual; only the output of the last block has a single reader,
    // and so a single gradient
    let (mut plain, mut residual, mut last) = (0, 0, 0);
    for (node, shape) in net.nodes.iter().zip(&shapes[1..]) {
        match &node.op {
            Op::Norm(norm) if norm.residual => (residual, last) = (residual + shape.elems(), shape.elems()),
            Op::Norm(_) => plain += shape.elems(),
            _ => {}
        }
    }
    let graph = Graph::new(cuda, net, IMAGES, Purpose::Train { bucket_bytes: 4 << 20 }, 1).expect("a graph");
    let shares = graph.traffic();
    let of = |kind: &str| shares.iter().find(|share: &&TrafficShare| share.kind == kind).expect("a kind").traffic;
    // elements per pass: forward reads x twice and the residual, and writes y. Backward reads x and dy twice and writes
    // dx. With a residual, backward also writes the residual's gradient and reads a second gradient of y and the mask.
    let forward = 3 * plain + 4 * residual;
    let backward = 5 * plain + 6 * residual + (residual - last);
    let mask = residual / 8;
    let want = Traffic { forward: IMAGES * (2 * forward + mask), backward: IMAGES * (2 * backward + mask) };
    assert_eq!(of("norm"), want);
    let gigabytes = |bytes: usize| (bytes / IMAGES * 256) as f64 / 1e9;
    let now = gigabytes(want.forward + want.backward);
    println!(
        "batch norm of 256 images moves {now:.2} GB; {:.2} with y in the mask's place",
        now + gigabytes(IMAGES * (2 * residual - 2 * mask))
    );
    assert!((54.2..54.4).contains(&now), "{now} GB for 256 images");
}
