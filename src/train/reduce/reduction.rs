//! How the gradients of this run will travel: its codec, and the buckets with what the recipe says of each tensor. Planned
//! before the first step; `exchange` carries it out.

use crate::backend::op::Op;
use crate::backend::{Backend, Precision};
use crate::comm::codec::{Bucket, Entry, Settings, Tensor};
use crate::error::Error;
use crate::nn::{Gather, Graph};
use crate::recipe::{Recipe, Reduce, TransportSetting, matches};
use crate::train::plan::division::Division;
use crate::train::reduce::coded::Coded;

/// The planned exchange of one rank.
pub struct Reduction<B: Backend> {
    /// The codec.
    pub entry: &'static Entry,
    /// Its settings.
    pub settings: Settings,
    /// The run's seed, which keys the codec's draws.
    pub seed: u64,
    /// Whether a gradient that is not finite is a matter of the loss's scale, which the device settles.
    pub scaled: bool,
    /// One for each chunk of the gradient arena; empty once the exchange has taken them.
    pub codecs: Vec<Coded<B>>,
    /// Parameters that go as `exact` where the codec rounds: tensors, elements.
    pub exempt: (usize, usize),
}

impl<B: Backend> Reduction<B> {
    /// For the chunks of `graph`, on one of so many ranks.
    pub fn new(recipe: &Recipe, graph: &Graph<B>, division: &Division, ranks: usize) -> Result<Self, Error> {
        let reduce = &recipe.reduce;
        let entry = reduce.codec.entry();
        let settings =
            Settings { workers: division.workers, clip: reduce.clip() as f32, error_feedback: reduce.error_feedback() };
        let buckets = buckets(graph, reduce, entry)?;
        let exempt = buckets.iter().flat_map(|b| &b.tensors).filter(|t| t.exempt);
        let exempt = exempt.fold((0, 0), |sum, t| (sum.0 + 1, sum.1 + t.elems));
        let travels = ranks > 1 || entry.keeps_workers_apart(&settings);
        let device = Some(graph.backend())
            .filter(|backend| backend.queues() && travels && reduce.path != TransportSetting::Staged);
        let codecs = buckets.into_iter().map(|b| Coded::new(entry, b, &settings, division.mine.clone(), device));
        let (codecs, scaled) = (codecs.collect::<Result<_, _>>()?, recipe.precision == Precision::F16);
        Ok(Self { entry, settings, seed: recipe.seed, scaled, codecs, exempt })
    }

    /// Whether workers' gradients are added on their rank or kept apart.
    pub fn gather(&self) -> Gather {
        if self.entry.keeps_workers_apart(&self.settings) { Gather::Apart } else { Gather::Summed }
    }

    /// Whether the device makes the codes.
    pub fn on_device(&self) -> bool {
        self.codecs.iter().any(|coded| matches!(coded, Coded::Device(..)))
    }

    /// Whether workers' losses and statistics are added on their rank or kept apart.
    pub fn summed_numbers(&self) -> Gather {
        if self.entry.integer { Gather::Apart } else { Gather::Summed }
    }

    /// Bytes of memory of all codecs, residuals included.
    pub fn memory(&self) -> usize {
        self.codecs.iter().map(Coded::memory).sum()
    }

    /// The codec and its settings, for the log.
    pub fn describe(&self) -> String {
        let mut text = format!("{}: {}", self.entry.name, self.entry.about);
        if self.exempt.0 > 0 {
            text += &format!("; {} tensors of {} elements go as exact", self.exempt.0, self.exempt.1);
        }
        if self.settings.error_feedback {
            text += "; with error feedback";
        }
        text
    }
}

/// The chunks of the gradient arena with their tensors.
fn buckets<B: Backend>(graph: &Graph<B>, reduce: &Reduce, entry: &Entry) -> Result<Vec<Bucket>, Error> {
    let layout = graph.layout();
    let last = graph.net().nodes.iter().rposition(|node| matches!(node.op, Op::Linear(_)));
    let mut buckets: Vec<Bucket> = layout.chunks.iter().map(|&len| Bucket { len, tensors: Vec::new() }).collect();
    for (index, p) in layout.params.iter().enumerate() {
        let elems = p.spec.elems();
        let spared = elems < reduce.min_elements()
            || (Some(p.node) == last && !reduce.logits())
            || reduce.exempt.iter().flatten().any(|pattern| matches(pattern, &p.name));
        let parameter = u16::try_from(index)
            .map_err(|_| Error::Usage(format!("{}: a network may have 65,536 parameters at most", p.name)))?;
        let exempt = spared && entry.keys.contains(&"exempt");
        let tensor = Tensor { name: p.name.clone(), parameter, range: p.slot.range(), elems, exempt };
        buckets[p.slot.chunk].tensors.push(tensor);
    }
    buckets.iter_mut().for_each(|bucket| bucket.tensors.sort_by_key(|t| t.range.start));
    Ok(buckets)
}
