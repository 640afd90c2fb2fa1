//! An optimizer step over all buckets of a graph: clipping, trust ratios, the update and the averages.
//! [`backend::update`] has the update rules for one element.

use std::hash::{DefaultHasher, Hash, Hasher};

use backend::update::{NormedTensor, Norms, Units, rates};
use backend::{Arena, Backend, Buffer, Error, LossScaling, ParamGroup, Update};

use super::ema::Ema;
use super::method::{Method, SlotSpec};
use super::spec::OptimizerSpec;
use crate::{Batch, Graph, Loss, Param};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// False if it is already known that a parameter is not finite. A device with a queue may find that out only later.
    pub finite: bool,
    /// Norm of all gradients together before clipping. `None` unless they are clipped by norm.
    pub grad_norm: Option<f64>,
}

struct StepNumbers {
    update: Update,
    /// The update for parameters that are frozen at first. Its coefficients use a step count that begins with the first
    /// step that trains these parameters.
    late: Update,
    average: f32,
}

/// Data for rules with two passes, such as LAMB's.
struct SecondPass<B: Backend> {
    /// The directions that the first pass writes. The rule treats them as its last slot. They are not kept between
    /// steps.
    directions: Arena<B>,
    /// A plan for all parameters, and one without the parameters that are frozen at first.
    plans: [StepPlan<B>; 2],
}

/// An optimizer with its slots. The slots have the same layout as the parameters.
pub struct Optimizer<B: Backend> {
    method: Box<dyn Method>,
    clip_value: Option<f64>,
    /// For each bucket, the output units whose gradients adaptive clipping limits. Empty without adaptive clipping.
    units: Vec<Units>,
    /// The first plan is for all parameters. The second leaves out those that are frozen at first, and is used while
    /// they are frozen.
    plans: [StepPlan<B>; 2],
    /// For each bucket, whether its parameters are frozen at first.
    frozen: Vec<bool>,
    slots: Vec<Arena<B>>,
    /// Present if the rule has two passes.
    second: Option<SecondPass<B>>,
    /// For each of the last two steps, a copy of the first values in [`StepPlan::rates`], which include the norm of all
    /// gradients. The copies to the host are asynchronous. Present if steps limit this norm.
    norms: Option<[B::Buf; 2]>,
    /// Momentum to use instead of the one in the settings.
    momentum: Option<f64>,
    steps: u64,
    /// The number of steps before the first step of the parameters that are frozen at first.
    late: u64,
}

impl<B: Backend> SecondPass<B> {
    /// Returns the data for the second pass over these tensors, or `None` if `wanted` is false.
    fn new(graph: &Graph<B>, wanted: bool, tensors: [&Vec<Vec<NormedTensor>>; 2]) -> Result<Option<Self>, Error> {
        if !wanted {
            return Ok(None);
        }
        let backend = graph.backend();
        let directions = Arena::new(backend, &graph.layout().buckets)?;
        let [all, trained] = tensors.map(|tensors| StepPlan::along(backend, tensors));
        Ok(Some(Self { directions, plans: [all?, trained?] }))
    }
}

impl<B: Backend> Optimizer<B> {
    /// Creates an optimizer for the parameters of `graph`. Call [`Optimizer::limit_units`] to limit the norms of units.
    pub fn new(graph: &Graph<B>, spec: &OptimizerSpec) -> Result<Self, Error> {
        let (layout, method) = (graph.layout(), spec.method());
        let rule = method.rule(1, None);
        let adapts = rule.adapts() || rule.second_pass().is_some_and(|second| second.adapts());
        let tensor = |p: &Param<B>| NormedTensor {
            range: p.slot.range(),
            weight_decay: spec.decay_of(&p.name, &p.spec.shape),
            adapts: adapts && spec.adapts(&p.name, &p.spec.shape),
            factor: spec.rate_of(&p.name) as f32,
        };
        let of_bucket = |bucket| layout.of_bucket(bucket).into_iter().map(tensor).collect();
        let tensors: Vec<Vec<NormedTensor>> = (0..layout.buckets.len()).map(of_bucket).collect();
        let trained =
            |(of_bucket, frozen): (&Vec<NormedTensor>, &bool)| if *frozen { Vec::new() } else { of_bucket.clone() };
        let trained: Vec<Vec<NormedTensor>> = tensors.iter().zip(&layout.frozen).map(trained).collect();
        let second = SecondPass::new(graph, rule.second_pass().is_some(), [&tensors, &trained])?;
        let [all, trained] = [tensors, trained].map(|tensors| StepPlan::new(graph.backend(), tensors, spec.clip_norm));
        let mut slots = Vec::new();
        for SlotSpec { start, .. } in method.slots() {
            let mut arena = Arena::new(graph.backend(), &layout.buckets)?;
            for (i, p) in layout.params.iter().enumerate().filter(|_| start != 0.0) {
                graph.pack(i, &vec![start; p.spec.elems()], &mut arena)?;
            }
            slots.push(arena);
        }
        let (plans, frozen, clip_value) = ([all?, trained?], layout.frozen.clone(), spec.clip_value);
        let norm = || graph.backend().alloc(rates::NORM + 1);
        let norms = spec.clip_norm.map(|_| Ok::<_, Error>([norm()?, norm()?])).transpose()?;
        Ok(Self {
            method,
            clip_value,
            units: Vec::new(),
            plans,
            frozen,
            slots,
            second,
            norms,
            momentum: None,
            steps: 0,
            late: 0,
        })
    }

    /// Limits the gradient norm of each output unit to `part` times the norm of its weights, for all parameters for
    /// which `limited` is true.
    pub fn limit_units(&mut self, graph: &Graph<B>, part: f64, limited: impl Fn(&str) -> bool) -> Result<(), Error> {
        let layout = graph.layout();
        for bucket in 0..layout.buckets.len() {
            let mut units = Units::new(part);
            for p in layout.of_bucket(bucket).into_iter().filter(|p| limited(&p.name)) {
                units.add(&p.format, &p.spec.shape, p.slot.range())?;
            }
            self.units.push(units);
        }
        Ok(())
    }

    /// Sets the momentum from the next step on. `None` means the momentum of the settings.
    pub fn set_momentum(&mut self, momentum: Option<f64>) {
        self.momentum = momentum;
    }

    /// Makes the step count of the initially frozen parameters begin after `step` steps, as if they were added to the
    /// optimizer then.
    pub fn begin_frozen_at(&mut self, step: u64) {
        self.late = step;
    }

    /// Returns true if the coefficients of the update rule differ from step to step, as with Adam's bias corrections.
    pub fn counts_steps(&self) -> bool {
        self.method.rule(1, None) != self.method.rule(2, None)
    }

    /// Sends the coefficients of the next step to the device together with the next pass's inputs, if the device has a
    /// queue. With a separate copy after the pass, the host would have to wait for the pass before it begins another.
    pub fn announce(&self, graph: &Graph<B>, lr: f64, ema: Option<&Ema<B>>) -> Result<(), Error> {
        let next = self.numbers(self.steps + 1, lr, ema);
        graph.backend().queue().map_or(Ok(()), |queue| queue.announce_update(&next.update, next.average))
    }

    /// Runs [`Optimizer::start_step`]. If the norm of the gradients is limited, also waits for this norm.
    pub fn step(&mut self, graph: &mut Graph<B>, lr: f64, ema: Option<&mut Ema<B>>) -> Result<StepOutcome, Error> {
        let finite = self.start_step(graph, lr, ema)?;
        Ok(StepOutcome { finite, grad_norm: self.grad_norm(self.steps)? })
    }

    /// Performs a step with the gradients in the graph, then updates the averages. The gradients are sums over all
    /// ranks, and clipping changes them in place. A device with a queue only enqueues the step. Returns false if it is
    /// already known that a parameter is not finite.
    pub fn start_step(&mut self, graph: &mut Graph<B>, lr: f64, mut ema: Option<&mut Ema<B>>) -> Result<bool, Error> {
        let next = self.advance(graph.backend(), lr, ema.as_deref());
        let mut averages = ema.as_mut().map(|ema| &mut ema.weights);
        let held = graph.is_frozen();
        let (backend, weights, grads) = graph.to_update();
        let key = self.key(held, [&*weights, &*grads].into_iter().chain(averages.as_deref()));
        let mut finite = true;
        let mut work = || {
            finite = self.enqueue(backend, &next, held, (weights, grads), averages.as_deref_mut())?;
            Ok(())
        };
        match backend.queue() {
            Some(queue) => {
                queue.begin_update(&next.update, next.average)?;
                queue.repeat("the optimizer step", key, &mut work)?;
            }
            None => work()?,
        }
        ema.map_or(Ok(()), |ema| ema.replace_weights(graph, self.steps))?;
        self.keep_norm(graph.backend(), held)?;
        Ok(finite)
    }

    /// Runs the pass of a rank's last worker and then the optimizer step. The device does not wait for the host between
    /// the two. The device must have a queue and the gradients must stay on this rank.
    ///
    /// [`Graph::sums`] returns the sums of the pass. If a parameter is not finite, the sums of the next pass show it.
    /// The gradients in the graph may be undefined afterwards.
    pub fn step_with_pass(
        &mut self,
        graph: &mut Graph<B>,
        batch: Batch<'_>,
        loss: Loss,
        lr: f64,
        mut ema: Option<&mut Ema<B>>,
    ) -> Result<(), Error> {
        let next = self.advance(graph.backend(), lr, ema.as_deref());
        let mut averages = ema.as_mut().map(|ema| &mut ema.weights);
        let held = graph.is_frozen();
        let key = self.key(held, averages.as_deref().into_iter());
        if let Some(queue) = graph.backend().queue() {
            queue.announce_update(&next.update, next.average)?;
        }
        let only_updates = self.only_updates(graph.backend(), &next.update);
        let mut work = |backend: &B, weights: &mut Arena<B>, grads: &mut Arena<B>| {
            self.enqueue(backend, &next, held, (weights, grads), averages.as_deref_mut()).map(|_| ())
        };
        graph.start_with_follow_up(batch, loss, key, only_updates, &mut work)?;
        ema.map_or(Ok(()), |ema| ema.replace_weights(graph, self.steps))?;
        self.keep_norm(graph.backend(), held)
    }

    /// Returns true if nothing but the update itself reads the gradients in [`Self::change`].
    fn only_updates(&self, backend: &B, update: &Update) -> bool {
        let plain = self.clip_value.is_none() && self.units.is_empty();
        plain && backend.loss_scaling().is_none() && !self.reads_norms(update)
    }

    /// Returns true if a step depends on the norms of the gradients.
    fn reads_norms(&self, update: &Update) -> bool {
        self.limits_norm() || update.rule.adapts()
    }

    /// Counts a step and returns its coefficients.
    fn advance(&mut self, backend: &B, lr: f64, ema: Option<&Ema<B>>) -> StepNumbers {
        self.steps += 1;
        backend.loss_scaling().into_iter().for_each(LossScaling::count_update);
        self.numbers(self.steps, lr, ema)
    }

    fn numbers(&self, step: u64, lr: f64, ema: Option<&Ema<B>>) -> StepNumbers {
        let average = ema.map_or(0.0, |ema| ema.weight(step) as f32);
        let update = |step| Update { rule: self.method.rule(step, self.momentum), lr };
        let late = step.saturating_sub(self.late).max(1);
        StepNumbers { update: update(step), late: update(late), average }
    }

    /// Updates the parameters and then the averages. Returns false if it is already known that a parameter is not
    /// finite.
    fn enqueue(
        &mut self,
        backend: &B,
        next: &StepNumbers,
        held: bool,
        (weights, grads): (&mut Arena<B>, &mut Arena<B>),
        averages: Option<&mut Arena<B>>,
    ) -> Result<bool, Error> {
        let finite = self.change(backend, next, held, weights, grads)?;
        let mut pairs = averages.into_iter().flat_map(|averages| averages.buckets.iter_mut().zip(&weights.buckets));
        pairs.try_for_each(|(to, from)| backend.lerp(to, from, next.average))?;
        Ok(finite)
    }

    /// Returns true if steps limit the norm of all gradients together.
    pub fn limits_norm(&self) -> bool {
        self.plans[0].norms.limit.is_some()
    }

    /// Returns the plan for a step. If `held` is true, it excludes the parameters that are frozen at first.
    fn plan(&mut self, held: bool) -> &mut StepPlan<B> {
        &mut self.plans[usize::from(held)]
    }

    /// Undoes the loss scaling, clips the gradients, computes norms, and updates each bucket that is currently trained.
    /// Returns false if it is already known that a parameter is not finite.
    fn change(
        &mut self,
        backend: &B,
        next: &StepNumbers,
        held: bool,
        weights: &mut Arena<B>,
        grads: &mut Arena<B>,
    ) -> Result<bool, Error> {
        let update = &next.update;
        // Undo the loss scaling first. Do it before clipping, because clipping would hide values that are not finite.
        if let Some(scaling) = backend.loss_scaling() {
            // the other buckets have no gradients of this step
            let buckets = grads.buckets.iter().zip(&self.frozen);
            let trained: Vec<&B::Buf> = buckets.filter(|(_, frozen)| !(held && **frozen)).map(|(g, _)| g).collect();
            scaling.inspect(&trained)?;
        }
        if let Some(limit) = self.clip_value {
            grads.buckets.iter_mut().try_for_each(|bucket| backend.clamp(bucket, limit as f32))?;
        }
        let limited = self.units.iter().zip(weights.buckets.iter().zip(&mut grads.buckets));
        for (bucket, (units, (w, g))) in limited.enumerate() {
            if !(held && self.frozen[bucket]) {
                backend.limit_units(units, w, g)?;
            }
        }
        if self.reads_norms(update) {
            let plan = self.plan(held);
            backend.rates(&plan.norms, update, weights, grads, &mut plan.rates)?;
        }
        let (plan, mut finite) = (&self.plans[usize::from(held)], true);
        for (bucket, (w, g)) in weights.buckets.iter_mut().zip(&grads.buckets).enumerate() {
            let late = self.frozen[bucket];
            if held && late {
                continue;
            }
            let work = self.second.iter_mut().map(|second| &mut second.directions);
            let arenas = self.slots.iter_mut().chain(work);
            let mut slots: Vec<&mut B::Buf> = arenas.map(|slot| &mut slot.buckets[bucket]).collect();
            let update = if late { &next.late } else { update };
            finite &= backend.update(update, &plan.groups[bucket], &plan.rates, w, g, &mut slots)?;
        }
        Ok(finite && self.run_second_pass(backend, next, held, weights)?)
    }

    /// Runs the second pass of a rule that has one: computes the norms of the directions, and updates the parameters
    /// along them.
    fn run_second_pass(
        &mut self,
        backend: &B,
        next: &StepNumbers,
        held: bool,
        weights: &mut Arena<B>,
    ) -> Result<bool, Error> {
        let Some(SecondPass { directions, plans }) = &mut self.second else { return Ok(true) };
        let [usual, late] = [&next.update, &next.late].map(|u| u.rule.second_pass().map(|rule| Update { rule, ..*u }));
        let (Some(usual), Some(late)) = (usual, late) else { return Ok(true) };
        let plan = &mut plans[usize::from(held)];
        backend.rates(&plan.norms, &usual, weights, directions, &mut plan.rates)?;
        let mut finite = true;
        for (bucket, (w, direction)) in weights.buckets.iter_mut().zip(&directions.buckets).enumerate() {
            if held && self.frozen[bucket] {
                continue;
            }
            let update = if self.frozen[bucket] { &late } else { &usual };
            finite &= backend.update(update, &plan.groups[bucket], &plan.rates, w, direction, &mut [])?;
        }
        Ok(finite)
    }

    /// Returns a hash of the addresses that a step uses: factors, slots, directions and the arenas in `others`. A
    /// recorded step can be replayed only while these addresses stay the same.
    fn key<'a>(&'a self, held: bool, others: impl Iterator<Item = &'a Arena<B>>) -> u64 {
        let mut hasher = DefaultHasher::new();
        ("an optimizer step", self.plans[usize::from(held)].rates.place()).hash(&mut hasher);
        let directions = self.second.iter().map(|second| &second.directions);
        let buckets = self.slots.iter().chain(directions).chain(others).flat_map(|arena| &arena.buckets);
        buckets.for_each(|bucket| bucket.place().hash(&mut hasher));
        hasher.finish()
    }

    /// Copies the norm of the gradients in the step that was just started, because the next step overwrites it. Does
    /// nothing if the norm is not limited.
    fn keep_norm(&mut self, backend: &B, held: bool) -> Result<(), Error> {
        let Some(norms) = &mut self.norms else { return Ok(()) };
        let (norm, factors) = (&mut norms[(self.steps % 2) as usize], &self.plans[usize::from(held)].rates);
        let Some(queue) = backend.queue() else {
            let mut first = [0.0; rates::NORM + 1];
            factors.read(0, &mut first)?;
            return norm.write(0, &first);
        };
        backend.copy(norm, factors)?;
        queue.mark(norm)?;
        norm.fetch()
    }

    /// Waits for the norm of all gradients in `step`, which must be one of the last two steps, and returns its value
    /// before clipping. Returns `None` if the norm is not limited.
    pub fn grad_norm(&mut self, step: u64) -> Result<Option<f64>, Error> {
        let Some(norms) = &mut self.norms else { return Ok(None) };
        Ok(Some(f64::from(norms[(step % 2) as usize].staged()?[rates::NORM])))
    }

    /// Returns the bytes of memory that a step needs in addition to the slots.
    pub fn work_bytes(&self) -> usize {
        let directions = self.second.iter().flat_map(|second| &second.directions.buckets);
        4 * directions.map(|bucket| bucket.len()).sum::<usize>()
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Sets the number of finished steps, for a resumed run. Adam's bias corrections depend on it.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Returns the slots by name. They have the layout of the parameters, see [`Graph::unpack`].
    pub fn slots(&self) -> impl Iterator<Item = (&'static str, &Arena<B>)> {
        self.method.slots().into_iter().map(|slot| slot.name).zip(&self.slots)
    }

    /// Returns the slots by name for writing, see [`Graph::pack`].
    pub fn slots_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Arena<B>)> {
        self.method.slots().into_iter().map(|slot| slot.name).zip(&mut self.slots)
    }
}

/// Everything that a step needs to know about the parameters that it changes.
pub(super) struct StepPlan<B: Backend> {
    /// The tensors of each bucket, and the limit for the norm.
    pub norms: Norms,
    /// The parameter groups of each bucket.
    pub groups: Vec<Vec<ParamGroup>>,
    /// The step's factors on gradients and learning rates, in the layout of [`rates`].
    pub rates: B::Buf,
}

impl<B: Backend> StepPlan<B> {
    /// Creates the plan for these tensors, listed by bucket. `limit` is the largest norm of all gradients together.
    pub fn new(backend: &B, tensors: Vec<Vec<NormedTensor>>, limit: Option<f64>) -> Result<Self, Error> {
        let plain = rates::plain(tensors.iter().flatten().map(|tensor| tensor.factor));
        let mut rates = backend.alloc(plain.len())?;
        rates.write(0, &plain)?;
        let groups = groups(&tensors);
        Ok(Self { norms: Norms { tensors, limit }, groups, rates })
    }

    /// Creates the plan for the second pass of a rule. Weight decay is 0 in it, because the directions already contain
    /// it.
    pub fn along(backend: &B, tensors: &[Vec<NormedTensor>]) -> Result<Self, Error> {
        let whole = |of_bucket: &Vec<NormedTensor>| {
            of_bucket.iter().map(|tensor| NormedTensor { weight_decay: 0.0, ..tensor.clone() }).collect()
        };
        Ok(Self { groups: groups(tensors), ..Self::new(backend, tensors.iter().map(whole).collect(), None)? })
    }
}

/// Returns the parameter groups of each bucket. Adjacent tensors with the same weight decay and rate form one group.
fn groups(tensors: &[Vec<NormedTensor>]) -> Vec<Vec<ParamGroup>> {
    let mut number = 0..;
    let mut of_bucket = |tensors: &Vec<NormedTensor>| {
        let mut groups: Vec<ParamGroup> = Vec::new();
        for (tensor, number) in tensors.iter().zip(&mut number) {
            let own = tensor.adapts || tensor.factor != 1.0;
            let rate = if own { rates::FIRST + number } else { rates::PLAIN };
            let (range, weight_decay) = (tensor.range.clone(), tensor.weight_decay as f32);
            match groups.last_mut() {
                Some(last) if (last.weight_decay, last.rate) == (weight_decay, rate) => last.range.end = range.end,
                _ => groups.push(ParamGroup { range, weight_decay, rate }),
            }
        }
        groups
    };
    tensors.iter().map(&mut of_bucket).collect()
}
