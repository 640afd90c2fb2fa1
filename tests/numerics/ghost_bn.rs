//! Ghost batch normalisation (`bn_group`): a single pass with groups, compared with a separate pass per group. Each
//! group is normalised with its own statistics. `ops.rs` and `gradients.rs` test single layers.

use backend::reference::Reference;
use backend::{Backend, Error};
use engine::{Gather, Graph, Loss, MicroBatch, Purpose};
use loaders::order::worker_positions;
use net::NetSpec;

use crate::sync_bn::{self, net};
use crate::training::{everywhere, gradients};
use support::images::THINGS;
use support::numerics::{IdenticalRanks, assert_close, magnitude};
use support::program::sets;
use support::setting::Setting;

struct Outcome {
    loss: f64,
    gradients: Vec<Vec<f32>>,
    statistics: Vec<f64>,
    counts: Vec<f64>,
}

fn graph<B: Backend>(backend: B, bn_groups: usize, batch: usize) -> Graph<B> {
    let (net, purpose) = (NetSpec { bn_groups, ..net() }, Purpose::Train { bucket_bytes: 64 });
    Graph::new(backend, net, batch, purpose, 7).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a step on `rows` rows, divided into `passes` passes with `groups` groups each. The graph is planned for `batch` rows.
fn step<B: Backend>(backend: B, batch: usize, rows: usize, passes: usize, groups: usize) -> Outcome {
    let (mut graph, rows) = (graph(backend, groups, batch), sync_bn::rows(rows));
    graph.prepare_accumulation(0..passes, Gather::Summed).unwrap();
    let loss = Loss { smoothing: 0.1, scale: 1.0 / rows.labels.len() as f32 };
    let (mut statistics, mut counts) = (vec![0.0; graph.running().len()], vec![0.0; graph.norms().len()]);
    let mut sum = 0.0;
    for worker in 0..passes {
        let part = worker_positions(rows.labels.len(), worker, passes);
        let empty = part.is_empty();
        let turn = MicroBatch { worker, last: worker + 1 == passes };
        sum += graph.train::<Error>(rows.part(part), loss, turn, None).unwrap_or_else(|e| panic!("{e}")).loss;
        if !empty {
            graph.pool_statistics(&mut statistics, &mut counts);
        }
    }
    Outcome { loss: sum, gradients: gradients(&graph), statistics, counts }
}

fn check<B: Backend>(backend: impl Fn() -> B, name: &str) {
    let differ = |one: &Outcome, other: &Outcome| (one.loss / other.loss - 1.0).abs();
    let [together, apart] = [1, 3].map(|groups| step(backend(), 9, 9, 1, groups));
    assert!(differ(&together, &apart) > 1e-4, "{name}: groups must change the loss");
    // tests equal and unequal groups, a short last batch, and fewer images than groups
    for (rows, groups) in [(9, 3), (9, 4), (5, 3), (2, 3), (1, 3), (9, 9)] {
        let what = format!("{name}, {rows} images in {groups} groups");
        let want = step(backend(), 9, rows, groups, 1);
        let got = step(backend(), 9, rows, 1, groups);
        assert!(differ(&got, &want) < 1e-5, "{what}: loss {}, expected {}", got.loss, want.loss);
        for (i, (got, want)) in got.gradients.iter().zip(&want.gradients).enumerate() {
            assert_close(&format!("{what}: gradient {i}"), got, want, 1e-5 * magnitude(want) + 1e-6);
        }
        assert_eq!(got.counts, want.counts, "{what}: values per channel");
        let single: Vec<f32> = got.statistics.iter().map(|v| *v as f32).collect();
        let tolerance = 1e-5 * magnitude(&want.statistics);
        assert_close(&format!("{what}: statistics"), &single, &want.statistics, tolerance);
    }
}

#[test]
fn groups_in_one_pass_are_passes_of_their_own() {
    everywhere!(check);
}

#[test]
fn statistics_over_all_ranks_exclude_groups() {
    let one_rank = || Box::new(IdenticalRanks(1.0));
    let error = graph(Reference, 2, 4).normalise_across(one_rank()).expect_err("groups").to_string();
    assert!(error.contains("batch normalisation") && error.contains("groups"), "{error}");
    graph(Reference, 1, 4).normalise_across(one_rank()).unwrap();
}

/// Creates a data set of 83 images, so that the last batch has 3 images and some groups are empty.
fn setting() -> Setting {
    Setting::new(&sync_bn::recipe("workers = 2\nbn_group = 4"), THINGS, [83, 21])
}

#[test]
fn ranks_and_stops_do_not_change_runs_with_groups() {
    let (setting, exact) = (setting(), ["--set", "reduce.codec=exact"]);
    setting.assert_ranks_change_nothing(&[2], &exact);
    // an epoch has six steps
    setting.assert_stops_change_nothing("1", &[(2, "3")], 1, &exact);
}

/// A run with a single worker and groups gives the same result as a run with more and smaller workers.
#[test]
fn groups_replace_workers() {
    let setting = setting();
    setting.trained("workers", 1, &["--set", "workers=4", "--unset", "bn_group"]);
    setting.trained("groups", 1, &["--set", "workers=1"]);
    setting.trained("neither", 1, &["--set", "workers=1", "--unset", "bn_group"]);
    let [workers, groups, neither] = ["workers", "groups", "neither"].map(|out| setting.losses(out));
    assert_eq!((workers.len(), groups.len()), (6, 6));
    setting.assert_losses_near("groups", "workers", 1e-5);
    assert!((neither[0] / workers[0] - 1.0).abs() > 1e-4, "groups must change the loss");
}

#[test]
fn groups_that_do_not_fit_are_refused() {
    let setting = setting();
    let refused = |set: &[&str], parts: &[&str]| {
        setting.train("refused", 1, &sets(set)).failed(2, parts);
    };
    refused(
        &["bn_group=3"],
        &["bn_group", "groups of 3", "8 images of a worker", "batch = 16, workers = 2", "such as 2"],
    );
    refused(&["bn_group=16"], &["bn_group", "groups of 16", "8 images of a worker", "such as 8"]);
    refused(&["workers=3"], &["bn_group", "batch = 16, workers = 3", "another batch"]);
    refused(&["workers=1", "sync_bn=true"], &["bn_group", "group of 4 images", "sync_bn = true"]);
    refused(&["bn_group=0"], &["bn_group", "must be >= 1, got 0"]);
}
