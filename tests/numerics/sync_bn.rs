//! Synchronised batch normalisation: a batch divided among ranks compared with one rank that has the whole batch.
//!
//! Most ranks here are threads that sum through shared memory. The last tests run the real binary under `mpirun`.

use std::ops::Range;
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex};

use backend::reference::Reference;
use backend::{Across, Backend, Error};
use engine::{Graph, Loss, MicroBatch, Purpose};
use net::{Conv, Flatten, Linear, NetSpec, Norm, Op, Shape, Shortcut};

use crate::training::{Rows, gradients, statistics};
use support::images::THINGS;
use support::numerics::{assert_close, cpu, magnitude};
use support::program::{GPUS, NO_GPU, PATIENCE, ProgramOutput, on_ranks, start, trireme};
use support::setting::Setting;
use support::skip;
use support::small_run::SmallRun;
use support::weights::assert_tensors_near;

const IMAGE: Shape = Shape::image(3, 7, 6);
const CLASSES: usize = 5;

/// The shared memory in which the ranks of a test sum their statistics.
struct SharedSums {
    sums: Mutex<Vec<f64>>,
    barrier: Barrier,
}

impl SharedSums {
    fn new(ranks: usize) -> Arc<Self> {
        Arc::new(Self { sums: Mutex::default(), barrier: Barrier::new(ranks) })
    }
}

struct Rank(Arc<SharedSums>);

impl Across for Rank {
    fn sum(&self, values: &mut [f64]) -> Result<(), Error> {
        let SharedSums { sums, barrier } = self.0.as_ref();
        if barrier.wait().is_leader() {
            sums.lock().unwrap().clear();
        }
        barrier.wait();
        {
            let mut sums = sums.lock().unwrap();
            if sums.is_empty() {
                sums.resize(values.len(), 0.0);
            }
            assert_eq!(sums.len(), values.len(), "ranks sum different numbers of values");
            sums.iter_mut().zip(values.iter()).for_each(|(sum, v)| *sum += v);
        }
        barrier.wait();
        values.copy_from_slice(&sums.lock().unwrap());
        Ok(())
    }
}

/// Returns a network with every form of batch normalisation: with and without ReLU, with a residual, with an output
/// that two layers read, and with channel counts that fill no block.
pub fn net() -> NetSpec {
    let mut net = NetSpec::new("norms", IMAGE);
    let conv = |c, stride| Op::Conv(Conv::new(c, 3).pad(1).stride(stride));
    let x = net.add("c1", conv(6, 1), net.image());
    let n1 = net.add("n1", Op::Norm(Norm::new().relu()), x);
    let x = net.add("c2", conv(12, 2), n1);
    let x = net.add("n2", Op::Norm(Norm::new()), x);
    let shortcut = net.add("s", Op::Shortcut(Shortcut { out_channels: 12, stride: 2 }), n1);
    let x = net.add("c3", conv(12, 1), x);
    let x = net.join("n3", Op::Norm(Norm::new().relu().residual()), &[x, shortcut]);
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

/// Creates images with a mean far from zero, so that a wrong mean changes the results.
pub fn rows(n: usize) -> Rows {
    Rows::new(IMAGE, 3.0, CLASSES, n)
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    loss: f64,
    scores: Vec<f32>,
    gradients: Vec<Vec<f32>>,
    statistics: Vec<f64>,
    counts: Vec<f64>,
}

fn step<B: Backend>(backend: B, rows: &Rows, part: Range<usize>, sum: Option<Arc<SharedSums>>) -> Outcome {
    // small buckets that are handed over as soon as they are finished, as with overlap
    let purpose = Purpose::Train { bucket_bytes: 64 };
    let mut graph = Graph::new(backend, net(), rows.labels.len(), purpose, 7).unwrap_or_else(|e| panic!("{e}"));
    if let Some(sum) = sum {
        graph.normalise_across(Box::new(Rank(sum))).unwrap();
    }
    let loss = Loss { smoothing: 0.1, scale: 1.0 / rows.labels.len() as f32 };
    let mut buckets = Vec::new();
    let mut keep = |bucket, gradients| {
        buckets.push((bucket, gradients));
        Ok::<(), Error>(())
    };
    let empty = part.is_empty();
    let sums = graph.train(rows.part(part), loss, MicroBatch::ONLY, Some(&mut keep)).unwrap_or_else(|e| panic!("{e}"));
    assert!(buckets.iter().map(|c| c.0).eq(0..graph.layout().buckets.len()), "not each bucket once and in order");
    buckets.into_iter().for_each(|(bucket, gradients)| graph.put(bucket, gradients));
    let none = || (vec![0.0; graph.running().len()], vec![0.0; graph.norms().len()]);
    let (statistics, counts) = if empty { none() } else { statistics(&graph) };
    Outcome {
        loss: sums.loss,
        scores: if empty { Vec::new() } else { graph.output(net().nodes.len()).unwrap() },
        gradients: gradients(&graph),
        statistics,
        counts,
    }
}

fn add(to: &mut [f64], from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

fn check<B: Backend>(backend: impl Fn() -> B + Sync, name: &str) {
    let rows = rows(9);
    let whole = step(backend(), &rows, 0..9, None);
    let alone = step(backend(), &rows, 0..4, None);
    assert!((alone.scores[0] - whole.scores[0]).abs() > 1e-3, "{name}: a part must change the scores");
    for shares in [vec![0..9, 9..9], vec![0..4, 4..9], vec![0..1, 1..1, 1..7, 7..9], vec![0..0, 0..9]] {
        let sum = SharedSums::new(shares.len());
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let start = |part: &Range<usize>| {
                let (part, sum, rows, backend) = (part.clone(), sum.clone(), &rows, &backend);
                scope.spawn(move || step(backend(), rows, part, Some(sum)))
            };
            let ranks: Vec<_> = shares.iter().map(start).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let what = format!("{name}, {shares:?}");
        let scores: Vec<f32> = outcomes.iter().flat_map(|o| o.scores.clone()).collect();
        assert_close(&format!("{what}: scores"), &scores, &whole.scores, 1e-5 * magnitude(&whole.scores));
        let loss: f64 = outcomes.iter().map(|o| o.loss).sum();
        assert!((loss / whole.loss - 1.0).abs() < 1e-5, "{what}: loss {loss}, expected {}", whole.loss);
        for (i, want) in whole.gradients.iter().enumerate() {
            let mut got = vec![0.0; want.len()];
            outcomes.iter().for_each(|o| got.iter_mut().zip(&o.gradients[i]).for_each(|(a, b)| *a += b));
            assert_close(&format!("{what}: gradient {i}"), &got, want, 1e-5 * magnitude(want) + 1e-7);
        }
        let (mut statistics, mut counts) = (vec![0.0; whole.statistics.len()], vec![0.0; whole.counts.len()]);
        for outcome in &outcomes {
            add(&mut statistics, &outcome.statistics);
            add(&mut counts, &outcome.counts);
        }
        assert_eq!(counts, whole.counts, "{what}: values per channel");
        let single: Vec<f32> = statistics.iter().map(|v| *v as f32).collect();
        assert_close(&format!("{what}: statistics"), &single, &whole.statistics, 1e-5 * magnitude(&whole.statistics));
    }
}

#[test]
fn ranks_with_parts_of_a_batch_are_one_rank_with_all_of_it() {
    check(|| Reference, "reference");
    check(|| cpu(1), "cpu, 1 thread");
    check(|| cpu(2), "cpu, 2 threads");
}

/// Returns a recipe for batches of 16 images with these keys at the top.
pub fn recipe(keys: &str) -> String {
    format!(
        r#"
model = "resnet20"
epochs = 1
seed = 7
batch = 16
{keys}
optimizer.momentum = 0.9
optimizer.nesterov = true
optimizer.weight_decay = 1e-4
schedule.base_lr = 0.0002
augment.train = ["pad_crop(4)", "flip", "normalize"]
"#
    )
}

/// Creates a data set of 83 images, so that the last batch has 3 images and one of 4 ranks has no image.
fn setting() -> Setting {
    Setting::new(&(recipe("sync_bn = true") + "[reduce]\nbucket_mb = 0.1\n"), THINGS, [83, 21])
}

#[test]
fn two_and_four_ranks_train_as_one_rank_with_the_whole_batch() {
    let setting = setting();
    let one = setting.trained("1", 1, &[]);
    assert_eq!(setting.losses("1").len(), 6);
    for (ranks, overlap) in [(2, "false"), (2, "true"), (4, "true")] {
        let out = format!("{ranks}-{overlap}");
        let several = setting.trained(&out, ranks, &["--set", &format!("reduce.overlap={overlap}")]);
        setting.assert_losses_near(&out, "1", 1e-5);
        assert_tensors_near(&several, &one, 1e-5);
    }
}

/// Runs a program on two ranks. The first may use one CPU and the second two, so only the second has a core for MPI.
fn on_uneven_ranks(program: &Command, cpus: &[usize]) -> ProgramOutput {
    let bound = format!(
        "case ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} in 0) cpus={} ;; *) cpus={},{} ;; esac; exec taskset -c $cpus \"$@\"",
        cpus[0], cpus[1], cpus[2]
    );
    let mut command = on_ranks(2, "sh");
    command.args(["-c", &bound, "sh"]).arg(program.get_program()).args(program.get_args()).env(GPUS, NO_GPU);
    start(command).wait(PATIENCE)
}

/// If only the second rank summed buckets during backward, a bucket would meet the first rank's statistics of batch norm,
/// or its part of the search for an infinite loss.
#[test]
fn ranks_with_different_numbers_of_cores_sum_at_the_same_time() {
    let cpus = base::cores::affinity();
    if cpus.len() < 3 {
        return skip("ranks with one and two cores: there are fewer than three cores");
    }
    let setting = setting();
    setting.trained("after", 2, &["--set", "reduce.overlap=false"]);
    let ended = on_uneven_ranks(&setting.command("uneven", 0, &["--threads", "1"]), &cpus).succeeded();
    ended.says(&["exchange", "after backward"]);
    assert_eq!(setting.losses("after").len(), 6);
    setting.assert_losses_near("uneven", "after", 1e-6);
    let broken = SmallRun::new();
    let more = ["--set", "reduce.codec=exact", "--set", "reduce.bucket_mb=0.1", "--set", "schedule.base_lr=1e18"];
    on_uneven_ranks(&trireme(0, &broken.args(&more)), &cpus).failed(1, &["gradient of parameter ", "NaN"]);
}

#[test]
fn several_workers_a_rank_are_refused() {
    setting().train("refused", 2, &["--set", "workers=4"]).failed(2, &["sync_bn", "4 workers on 2 ranks"]);
}
