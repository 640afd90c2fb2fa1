//! Plans the gradient sums of a run: the codec, the buckets, and the recipe's settings for each tensor. The plan is
//! made before the first step and allocates all memory. [`gradients`](super::gradients) uses it in every step.

use std::ops::Range;
use std::time::Duration;

use backend::{Backend, Precision};
use base::text::plural;
use comm::codec::{Bucket, EXACT, Entry, Settings, Tensor};
use engine::{Gather, Graph};
use recipe::{Recipe, Reduce, TransportSetting, matches};

use crate::error::Error;
use crate::train::reduce::bucket_sum::{BucketSum, Costs};
use crate::train::reduce::device::DeviceSum;
use crate::train::reduce::host::{Alternating, ExactEpochs, HostSum};

pub struct ReducePlan<B: Backend> {
    pub entry: &'static Entry,
    pub settings: Settings,
    /// Seed of the run. It becomes part of the key for random draws.
    pub seed: u64,
    /// True if the device scales the losses and skips steps with gradients that are not finite.
    pub scaled: bool,
    /// The sum of each bucket of the gradient arena. Empty after [`GradientSum`](super::gradients::GradientSum) has
    /// taken them.
    pub sums: Vec<Box<dyn BucketSum<B>>>,
    /// The parameters that the recipe exempts from rounding.
    exempt: Exempt,
    /// The epochs without rounding, if any.
    exact_epochs: Option<ExactEpochs>,
}

impl<B: Backend> ReducePlan<B> {
    /// Plans the sums for the buckets of `graph`. `workers` is the number of all workers. `mine` are the indexes of
    /// this rank's workers.
    pub fn new(
        recipe: &Recipe,
        graph: &Graph<B>,
        workers: usize,
        mine: &Range<usize>,
        ranks: usize,
        steps_per_epoch: u64,
    ) -> Result<Self, Error> {
        let reduce = &recipe.reduce;
        let entry = reduce.codec.0;
        let settings = Settings { workers, clip: reduce.clip() as f32, error_feedback: reduce.error_feedback() };
        let buckets = buckets(graph, reduce, entry)?;
        let exempt = buckets.iter().flat_map(|b| &b.tensors).filter(|t| t.exempt);
        let exempt = exempt
            .fold(Exempt::default(), |sum, t| Exempt { tensors: sum.tensors + 1, elements: sum.elements + t.elems });
        let must_sum_buckets = ranks > 1 || entry.keeps_workers_apart(&settings);
        let device = Some(graph.backend())
            .filter(|backend| backend.queue().is_some() && must_sum_buckets && reduce.path != TransportSetting::Staged);
        let every = reduce.floating_grad_epoch;
        let epochs = every.map(|every| ExactEpochs { every, steps_per_epoch });
        let plain = Settings::plain(workers);
        let sums = buckets.into_iter().map(|bucket| {
            let exact = epochs.map(|_| bucket_sum(&EXACT, bucket.clone(), &plain, mine.clone(), device)).transpose()?;
            let coded = bucket_sum(entry, bucket, &settings, mine.clone(), device)?;
            Ok::<Box<dyn BucketSum<B>>, Error>(match exact.zip(epochs) {
                Some((exact, epochs)) => Box::new(Alternating { coded, exact, epochs }),
                None => coded,
            })
        });
        let (sums, scaled) = (sums.collect::<Result<_, _>>()?, recipe.precision == Precision::F16);
        Ok(Self { entry, settings, seed: recipe.seed, scaled, sums, exempt, exact_epochs: epochs })
    }

    /// Returns whether the gradients of this rank's workers are added or stay separate.
    pub fn gather(&self) -> Gather {
        if self.entry.keeps_workers_apart(&self.settings) { Gather::PerWorker } else { Gather::Summed }
    }

    /// Returns true if the device encodes the gradients.
    pub fn on_device(&self) -> bool {
        self.sums.iter().any(|sum| sum.codes_on_device())
    }

    /// Returns whether the metrics of this rank's workers are added or stay separate.
    pub fn metrics_gather(&self) -> Gather {
        if self.entry.integer { Gather::PerWorker } else { Gather::Summed }
    }

    /// Returns the host memory of all sums in bytes, including residuals.
    pub fn memory(&self) -> usize {
        self.sums.iter().map(|sum| sum.memory()).sum()
    }

    pub fn describe(&self) -> String {
        let mut text = format!("{}: {}", self.entry.name, self.entry.about);
        let Exempt { tensors, elements } = self.exempt;
        if tensors > 0 {
            let (tensors, elements) = (plural(tensors, "tensor"), plural(elements, "element"));
            text += &format!("; {tensors} with {elements} use exact");
        }
        if let Some(epochs) = self.exact_epochs {
            text += &match epochs.every {
                1 => "; exact in every epoch".to_string(),
                every => format!("; exact in one of {every} epochs"),
            };
        }
        if self.settings.error_feedback {
            text += "; with error feedback";
        }
        text
    }
}

/// How many tensors and elements the codec does not round.
#[derive(Clone, Copy, Debug, Default)]
struct Exempt {
    tensors: usize,
    elements: usize,
}

/// Creates the sum of one bucket, with a codec on `device` if the device has it, otherwise on the host.
pub fn bucket_sum<B: Backend>(
    entry: &Entry,
    bucket: Bucket,
    settings: &Settings,
    mine: Range<usize>,
    device: Option<&B>,
) -> Result<Box<dyn BucketSum<B>>, Error> {
    if let Some((device, spec)) = device.zip((entry.spec)(&bucket, settings))
        && let Some(codec) = device.device_codec(&spec, mine.clone())?
    {
        return Ok(Box::new(DeviceSum::new(entry, bucket, codec)));
    }
    Ok(Box::new(HostSum::new(entry, bucket, settings, mine)))
}

/// Returns the buckets of the gradient arena with their tensors.
fn buckets<B: Backend>(graph: &Graph<B>, reduce: &Reduce, entry: &Entry) -> Result<Vec<Bucket>, Error> {
    let layout = graph.layout();
    let last = graph.net().last_layer();
    let mut buckets: Vec<Bucket> = layout.buckets.iter().map(|&len| Bucket { len, tensors: Vec::new() }).collect();
    for (index, p) in layout.params.iter().enumerate() {
        let elems = p.spec.elems();
        let spared = elems < reduce.min_elements()
            || (Some(p.node) == last && !reduce.logits())
            || reduce.exempt.iter().flatten().any(|pattern| matches(pattern, &p.name));
        let parameter = u16::try_from(index)
            .map_err(|_| Error::Usage(format!("{}: a network may have at most 65,536 parameters", p.name)))?;
        let exempt = spared && entry.keys.contains(&"exempt");
        let tensor = Tensor { name: p.name.clone(), parameter, range: p.slot.range(), elems, exempt };
        buckets[p.slot.bucket].tensors.push(tensor);
    }
    buckets.iter_mut().for_each(|bucket| bucket.tensors.sort_by_key(|t| t.range.start));
    Ok(buckets)
}

/// The steps to measure, given by the number of earlier steps. The range leaves out the first steps, which are slower.
pub const MEASURED: std::ops::Range<u64> = 3..11;

/// Sums of the costs over the measured steps.
#[derive(Default)]
pub struct Measured {
    steps: u64,
    sum: Costs,
}

impl Measured {
    /// Adds the costs of a step. After the last measured step, returns the means over the measured steps.
    pub fn add(&mut self, done: u64, costs: Costs, codec: &str) -> Option<report::Exchange> {
        if !MEASURED.contains(&done) || costs.float_bytes == 0 {
            return None;
        }
        self.steps += 1;
        self.sum += costs;
        (done + 1 == MEASURED.end).then(|| self.event(codec))
    }

    fn event(&self, codec: &str) -> report::Exchange {
        let steps = self.steps as f64;
        let ms = |time: Duration| time.as_secs_f64() * 1e3 / steps;
        let Costs { encode, wire, decode, float_wire, .. } = self.sum;
        report::Exchange {
            step: MEASURED.end,
            epoch: 0,
            codec: codec.into(),
            steps: self.steps,
            bytes: self.sum.bytes / self.steps,
            float_bytes: self.sum.float_bytes / self.steps,
            encode_ms: ms(encode),
            wire_ms: ms(wire),
            decode_ms: ms(decode),
            float_ms: (!float_wire.is_zero()).then(|| ms(float_wire)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_means_of_the_measured_steps_are_reported_once() {
        let ms = Duration::from_millis;
        let costs = |n| Costs {
            bytes: n,
            float_bytes: 10 * n,
            encode: ms(n),
            wire: ms(2 * n),
            decode: ms(3 * n),
            float_wire: ms(4 * n),
        };
        let mut measured = Measured::default();
        let events: Vec<_> = (0..40).filter_map(|done| measured.add(done, costs(done), "exact")).collect();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((event.step, event.steps, event.bytes, event.float_bytes), (11, 8, 6, 65));
        let times = [event.encode_ms, event.wire_ms, event.decode_ms, event.float_ms.unwrap()];
        assert_eq!(times.map(|t| (t * 100.0).round()), [650.0, 1300.0, 1950.0, 2600.0]);
        let quiet = (0..40).filter_map(|done| Measured::default().add(done, Costs::default(), "float")).count();
        assert_eq!(quiet, 0, "one rank sends nothing");
    }
}
