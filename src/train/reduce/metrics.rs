//! What a step sums over all ranks beside the gradients: loss and hits, batch-norm statistics, and each rank's waiting times.
//! All of it travels as one small allreduce: of f64, or, beside a codec of whole numbers, of 64-bit integers, for which the
//! workers' sums are kept apart until then.

use crate::backend::{Backend, LossSums};
use crate::nn::{Gather, Graph};
use loaders::random::philox4x32;

use crate::train::observe::timing::Pace;

/// Loss, top-1, top-5, count, digest of the samples; ranks that ask to stop, and for a checkpoint.
const SCALARS: usize = 7;
/// Where the last two stand.
const FLAGS: usize = 5;

/// What a rank asks for at the end of a step, and what all ranks then do: what any of them asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// End the run early.
    pub stop: bool,
    /// Take a checkpoint.
    pub save: bool,
}

impl Flags {
    /// What either requests.
    pub fn or(self, other: Self) -> Self {
        Self { stop: self.stop | other.stop, save: self.save | other.save }
    }
}

/// Layout of the vector that is summed.
#[derive(Clone, Copy, Debug)]
pub struct SumsLayout {
    /// Running statistics, two per channel.
    statistics: usize,
    /// Batch normalisations.
    norms: usize,
    /// Ranks; each has three places of its own, for its pace.
    ranks: usize,
    /// Whether workers' sums are added on their rank or kept apart.
    gather: Gather,
}

/// One step's sums, first of this rank, after the exchange of all.
#[derive(Clone, Debug)]
pub struct StepSums {
    layout: SumsLayout,
    /// The sums, or this rank's own numbers and then one vector a worker.
    shares: Vec<Vec<f64>>,
}

impl SumsLayout {
    /// For this graph on so many ranks.
    pub fn new<B: Backend>(graph: &Graph<B>, ranks: usize, gather: Gather) -> Self {
        Self { statistics: graph.running().len(), norms: graph.norms().len(), ranks, gather }
    }

    /// All zero.
    pub fn zero(&self) -> StepSums {
        StepSums { layout: *self, shares: vec![self.share()] }
    }

    fn share(&self) -> Vec<f64> {
        vec![0.0; SCALARS + self.statistics + self.norms + 3 * self.ranks]
    }
}

impl StepSums {
    /// Sums back from the exchange.
    pub fn from_values(layout: SumsLayout, values: Vec<f64>) -> Self {
        Self { layout, shares: vec![values] }
    }

    /// The vectors to be summed.
    pub fn into_shares(self) -> Vec<Vec<f64>> {
        self.shares
    }

    fn values(&self) -> &[f64] {
        &self.shares[0]
    }

    /// Adds one worker's share: its loss sums, the batch statistics of its last pass, and which samples it had.
    pub fn add<B: Backend>(&mut self, graph: &Graph<B>, sums: LossSums, worker: usize, ids: &[u64]) {
        let places = ids.iter().enumerate();
        // 32 bits each: their sum is exact in f64 for any batch below 2^21
        let hash =
            |(i, &id): (usize, &u64)| philox4x32([id as u32, (id >> 32) as u32, worker as u32, i as u32], [0, 0])[0];
        let digest: u64 = places.map(|place| u64::from(hash(place))).sum();
        let scalars = [sums.loss, sums.top1 as f64, sums.top5 as f64, sums.count as f64, digest as f64];
        if self.layout.gather == Gather::Apart {
            self.shares.push(self.layout.share());
        }
        let Some(values) = self.shares.last_mut() else { return };
        values.iter_mut().zip(scalars).for_each(|(v, s)| *v += s);
        if sums.count > 0 {
            let (statistics, rest) = values[SCALARS..].split_at_mut(self.layout.statistics);
            graph.pool_statistics(statistics, &mut rest[..self.layout.norms]);
        }
    }

    /// Notes this rank's pace: the wait for its loader in this step, all else of the step before.
    pub fn set_pace(&mut self, rank: usize, pace: Pace) {
        let at = self.pace_at() + 3 * rank;
        self.shares[0][at..at + 3].copy_from_slice(&[pace.data, pace.comm, pace.step]);
    }

    /// The ranks' paces.
    pub fn paces(&self) -> Vec<Pace> {
        let of = |v: &[f64]| Pace { data: v[0], comm: v[1], step: v[2] };
        self.values()[self.pace_at()..].chunks_exact(3).map(of).collect()
    }

    fn pace_at(&self) -> usize {
        SCALARS + self.layout.statistics + self.layout.norms
    }

    /// Notes what this rank asks for.
    pub fn set_flags(&mut self, flags: Flags) {
        let numbers = [flags.stop, flags.save].map(|flag| f64::from(u8::from(flag)));
        self.shares[0][FLAGS..FLAGS + 2].copy_from_slice(&numbers);
    }

    /// What any rank has asked for.
    pub fn flags(&self) -> Flags {
        Flags { stop: self.values()[FLAGS] > 0.0, save: self.values()[FLAGS + 1] > 0.0 }
    }

    /// Sum of the losses.
    pub fn loss(&self) -> f64 {
        self.values()[0]
    }

    /// Sum of this rank's own losses, before the exchange.
    pub fn own_loss(&self) -> f64 {
        self.shares.iter().map(|share| share[0]).sum()
    }

    /// Makes the loss not finite, which tells all ranks that a parameter is.
    pub fn spoil(&mut self) {
        self.shares[0][0] = f64::NAN;
    }

    /// Loss and hits as counts.
    pub fn loss_sums(&self) -> LossSums {
        let count = |i: usize| self.values()[i] as u64;
        LossSums { loss: self.values()[0], top1: count(1), top5: count(2), count: count(3) }
    }

    /// Digest of which sample went to which place of which worker.
    pub fn samples(&self) -> u64 {
        self.values()[4] as u64
    }

    /// Moves the running statistics towards the pooled ones of this step. With d = worker mean - running mean r:
    /// mean = r + S(n d)/S(n), var = S(M2 + n d^2)/S(n) - (S(n d)/S(n))^2, times n/(n-1) with n = S(n), so that one worker
    /// gives PyTorch's numbers; offsets from r keep what matters when |mean| is much larger than the deviation.
    pub fn update_running<B: Backend>(&self, graph: &mut Graph<B>) {
        let norms = graph.norms().to_vec();
        let momentum: Vec<f64> = norms.iter().map(|n| momentum(graph, n.node)).collect();
        let (statistics, rest) = self.values()[SCALARS..].split_at(self.layout.statistics);
        let running = graph.running_mut();
        for ((place, &n), m) in norms.iter().zip(rest).zip(momentum).filter(|((_, n), _)| **n > 0.0) {
            let (c, at) = (place.channels, place.offset);
            let unbias = if n > 1.0 { n / (n - 1.0) } else { 1.0 };
            for i in at..at + c {
                let offset = statistics[i] / n;
                let var = (statistics[i + c] / n - offset * offset).max(0.0) * unbias;
                let old = f64::from(running[i]);
                running[i] = (old + m * offset) as f32;
                running[i + c] = ((1.0 - m) * f64::from(running[i + c]) + m * var) as f32;
            }
        }
    }
}

fn momentum<B: Backend>(graph: &Graph<B>, node: usize) -> f64 {
    match &graph.net().nodes[node].op {
        crate::backend::op::Op::Norm(n) => f64::from(n.momentum),
        _ => 0.0,
    }
}
