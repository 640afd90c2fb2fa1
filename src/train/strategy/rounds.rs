//! Ranks that meet only now and then: local SGD and elastic averaging. Each trains by itself on its share of every batch, with the
//! optimizer of the recipe; here is what happens when they meet, and the one model that is scored and saved.
//!
//! - `local(H)`, local SGD: after every H-th step all go on from the mean of their parameters and optimizer slots. With the slots,
//!   `local(1)` is allreduce to rounding, and convergence with momentum is proven (Yu, Jin and Yang 2019, arXiv 1905.03817).
//! - `easgd(tau, alpha)`, synchronous elastic averaging (Zhang, Choromanska and LeCun 2015, arXiv 1412.6651, equations 3 and 4): in every
//!   tau-th step, with the parameters x_i and the centre c from before it, x_i <- (step of x_i) - alpha (x_i - c) and
//!   c <- c + alpha sum_i (x_i - c). Slots stay each rank's own; with Nesterov's momentum this is EAMSGD.
//!
//! Running statistics of batch normalisation are each rank's own and are pooled for the one model.

use crate::backend::{Arena, Backend, Buffer, Error};
use crate::nn::Graph;
use crate::recipe::Sync;

/// Sums over the ranks.
pub trait Sum {
    /// Replaces `values` by their sum over all ranks.
    fn sum(&mut self, values: &mut [f32]) -> Result<(), Error>;

    /// The same in double precision.
    fn sum_f64(&mut self, values: &mut [f64]) -> Result<(), Error>;

    /// Number of ranks.
    fn ranks(&self) -> usize;
}

/// What a rank keeps between meetings.
pub struct Rounds<B: Backend> {
    sync: Sync,
    /// EASGD's centre, the same on all ranks.
    centre: Option<Arena<B>>,
    /// How far this rank was from the centre before the step under way.
    apart: Option<Arena<B>>,
    /// What the rank had before it put on the one model.
    own: Option<(Arena<B>, Vec<f32>)>,
}

impl<B: Backend> Rounds<B> {
    /// For ranks that start from these parameters, the same on all of them.
    pub fn new(sync: Sync, backend: &B, weights: &Arena<B>) -> Result<Self, Error> {
        let mut rounds = Self { sync, centre: None, apart: None, own: None };
        if let Sync::Easgd { .. } = sync {
            rounds.centre = Some(copy(backend, weights)?);
            rounds.apart = Some(copy(backend, weights)?);
        }
        Ok(rounds)
    }

    /// Whether the ranks meet in the step that comes after `done` others.
    pub fn meets(&self, done: u64) -> bool {
        match self.sync {
            Sync::Easgd { period, .. } => done.is_multiple_of(period),
            _ => (done + 1).is_multiple_of(self.sync.period()),
        }
    }

    /// Before the update of a step in which the ranks meet: with EASGD, notes the distance and moves the centre.
    pub fn before(&mut self, weights: &Arena<B>, ranks: &mut dyn Sum) -> Result<(), Error> {
        let (Sync::Easgd { alpha, .. }, Some(centre), Some(apart)) = (self.sync, &mut self.centre, &mut self.apart)
        else {
            return Ok(());
        };
        let mut total = Vec::new();
        for ((centre, apart), own) in centre.chunks.iter_mut().zip(&mut apart.chunks).zip(&weights.chunks) {
            centre.fetch()?;
            own.read(0, apart.staged()?)?;
            let (centre_of_all, distance) = (centre.staged()?, apart.staged()?);
            distance.iter_mut().zip(&*centre_of_all).for_each(|(own, centre)| *own -= centre);
            total.clear();
            total.extend_from_slice(distance);
            ranks.sum(&mut total)?;
            centre_of_all.iter_mut().zip(&total).for_each(|(centre, total)| *centre += alpha as f32 * total);
            centre.unstage()?;
            apart.unstage()?;
        }
        Ok(())
    }

    /// After the update of a step in which the ranks meet: the elastic pull of EASGD, or the mean of local SGD, of the optimizer's
    /// `slots` too.
    pub fn after<'a>(
        &mut self,
        weights: &'a mut Arena<B>,
        slots: impl Iterator<Item = &'a mut Arena<B>>,
        ranks: &mut dyn Sum,
    ) -> Result<(), Error>
    where
        B: 'a,
    {
        match (self.sync, &mut self.apart) {
            (Sync::Easgd { alpha, .. }, Some(apart)) => {
                for (own, apart) in weights.chunks.iter_mut().zip(&mut apart.chunks) {
                    own.fetch()?;
                    apart.fetch()?;
                    let pairs = own.staged()?.iter_mut().zip(apart.staged()?);
                    pairs.for_each(|(own, apart)| *own -= alpha as f32 * *apart);
                    own.unstage()?;
                }
                Ok(())
            }
            (Sync::Local(_), _) => std::iter::once(weights).chain(slots).try_for_each(|arena| mean(arena, ranks)),
            _ => Ok(()),
        }
    }

    /// Puts the one model into the graph, for scoring and saving: EASGD's centre, or the mean; with pooled running statistics.
    pub fn put_on(&mut self, graph: &mut Graph<B>, ranks: &mut dyn Sum) -> Result<(), Error> {
        let running = graph.running().to_vec();
        let places: Vec<_> = graph.norms().iter().map(|n| (n.offset, n.channels)).collect();
        pool(graph.running_mut(), &places, ranks)?;
        let (backend, weights) = graph.weights_mut();
        let mut one = copy(backend, self.centre.as_ref().unwrap_or(weights))?;
        if self.centre.is_none() {
            mean(&mut one, ranks)?;
        }
        self.own = Some((std::mem::replace(weights, one), running));
        Ok(())
    }

    /// Whether the one model is in the graph.
    pub fn is_on(&self) -> bool {
        self.own.is_some()
    }

    /// Goes on with the rank's own parameters and statistics.
    pub fn take_off(&mut self, graph: &mut Graph<B>) {
        if let Some((weights, running)) = self.own.take() {
            *graph.weights_mut().1 = weights;
            graph.running_mut().copy_from_slice(&running);
        }
    }
}

/// Replaces an arena by its mean over the ranks.
fn mean<B: Backend>(arena: &mut Arena<B>, ranks: &mut dyn Sum) -> Result<(), Error> {
    let share = 1.0 / ranks.ranks() as f32;
    arena.chunks.iter_mut().try_for_each(|chunk| {
        chunk.fetch()?;
        let values = chunk.staged()?;
        ranks.sum(values)?;
        values.iter_mut().for_each(|value| *value *= share);
        chunk.unstage()
    })
}

/// Replaces running means m and variances v (`channels` of each, from `offset` on) by those of all ranks' data together, every rank
/// weighing alike: mean of m, and mean of (v + m^2) - (mean of m)^2, by offsets from m's mean so that nothing cancels.
fn pool(running: &mut [f32], places: &[(usize, usize)], ranks: &mut dyn Sum) -> Result<(), Error> {
    let share = 1.0 / ranks.ranks() as f64;
    let mut means: Vec<f64> = running.iter().map(|v| f64::from(*v)).collect();
    ranks.sum_f64(&mut means)?;
    means.iter_mut().for_each(|v| *v *= share);
    let mut spread = vec![0.0; running.len()];
    for &(offset, channels) in places {
        for i in offset..offset + channels {
            spread[i] = f64::from(running[i + channels]) + (f64::from(running[i]) - means[i]).powi(2);
        }
    }
    ranks.sum_f64(&mut spread)?;
    for &(offset, channels) in places {
        for i in offset..offset + channels {
            running[i] = means[i] as f32;
            running[i + channels] = (spread[i] * share) as f32;
        }
    }
    Ok(())
}

fn copy<B: Backend>(backend: &B, from: &Arena<B>) -> Result<Arena<B>, Error> {
    let lengths: Vec<usize> = from.chunks.iter().map(Buffer::len).collect();
    let mut arena = Arena::new(backend, &lengths)?;
    for (to, from) in arena.chunks.iter_mut().zip(&from.chunks) {
        backend.copy(to, from)?;
    }
    Ok(arena)
}

#[cfg(test)]
mod tests {
    //! Several ranks on quadratics f_i(x) = a/2 (x - c_i)^2, whose trajectories are known: ranks are threads that meet in sums.

    use std::sync::{Arc, Barrier, Mutex};

    use super::*;
    use crate::backend::reference::{HostBuf, Reference};

    /// Where the ranks of a test meet.
    #[derive(Clone)]
    struct Meeting {
        sums: Arc<Mutex<Vec<f64>>>,
        barrier: Arc<Barrier>,
        ranks: usize,
    }

    impl Sum for Meeting {
        fn sum(&mut self, values: &mut [f32]) -> Result<(), Error> {
            let mut wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
            self.sum_f64(&mut wide)?;
            values.iter_mut().zip(wide).for_each(|(v, sum)| *v = sum as f32);
            Ok(())
        }

        fn sum_f64(&mut self, values: &mut [f64]) -> Result<(), Error> {
            if self.barrier.wait().is_leader() {
                *self.sums.lock().unwrap() = vec![0.0; values.len()];
            }
            self.barrier.wait();
            self.sums.lock().unwrap().iter_mut().zip(values.iter()).for_each(|(sum, v)| *sum += v);
            self.barrier.wait();
            values.copy_from_slice(&self.sums.lock().unwrap());
            Ok(())
        }

        fn ranks(&self) -> usize {
            self.ranks
        }
    }

    fn arena(values: &[f32]) -> Arena<Reference> {
        Arena { chunks: values.iter().map(|v| HostBuf(vec![*v])).collect() }
    }

    const CURVE: f32 = 0.5;
    const RATE: f32 = 0.2;
    const MOMENTUM: f32 = 0.9;
    /// Minima of the ranks' functions.
    const MINIMA: [f32; 3] = [1.0, -2.0, 4.0];
    const START: f32 = 10.0;

    /// One rank's way: its x, its momentum, and the centre after each step.
    type Way = Vec<(f32, f32, f32)>;

    /// Gradient descent of `steps` steps on every rank's own quadratic, in two chunks of which the second stays at 0.
    fn descend(sync: Sync, steps: u64, momentum: f32) -> Vec<Way> {
        let ranks = MINIMA.len();
        let meeting = Meeting { sums: Arc::default(), barrier: Arc::new(Barrier::new(ranks)), ranks };
        std::thread::scope(|scope| {
            let start = |minimum: f32| {
                let mut meeting = meeting.clone();
                scope.spawn(move || {
                    let (mut x, mut m) = (arena(&[START, 0.0]), arena(&[0.0, 0.0]));
                    let mut rounds = Rounds::new(sync, &Reference, &x).unwrap();
                    let mut way = Way::new();
                    for done in 0..steps {
                        let gradient = CURVE * (x.chunks[0].0[0] - minimum);
                        let meets = rounds.meets(done);
                        if meets {
                            rounds.before(&x, &mut meeting).unwrap();
                        }
                        m.chunks[0].0[0] = momentum * m.chunks[0].0[0] + gradient;
                        x.chunks[0].0[0] -= RATE * m.chunks[0].0[0];
                        if meets {
                            rounds.after(&mut x, std::iter::once(&mut m), &mut meeting).unwrap();
                        }
                        assert_eq!(x.chunks[1].0[0], 0.0);
                        let centre = rounds.centre.as_ref().map_or(f32::NAN, |c| c.chunks[0].0[0]);
                        way.push((x.chunks[0].0[0], m.chunks[0].0[0], centre));
                    }
                    way
                })
            };
            let ranks: Vec<_> = MINIMA.into_iter().map(start).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[track_caller]
    fn assert_near(got: f32, want: f64) {
        assert!((f64::from(got) - want).abs() < 1e-4, "expected {want}, got {got}");
    }

    fn mean_minimum() -> f64 {
        MINIMA.iter().map(|c| f64::from(*c)).sum::<f64>() / MINIMA.len() as f64
    }

    /// Without momentum x_i = c_i + (1 - rate a)^k (x - c_i) after k steps from x, so the means go as (1 - rate a)^t to the mean of the
    /// minima, whatever H is: here the curvatures are equal.
    #[test]
    fn local_sgd_follows_the_closed_form() {
        let shrink = 1.0 - f64::from(RATE * CURVE);
        for period in [1, 4, 5] {
            for (way, minimum) in descend(Sync::Local(period), 23, 0.0).iter().zip(MINIMA) {
                for (t, (x, ..)) in (1..).zip(way) {
                    let mean = |t: u64| mean_minimum() + shrink.powi(t as i32) * (f64::from(START) - mean_minimum());
                    let last = t - t % period;
                    let own = f64::from(minimum) + shrink.powi((t - last) as i32) * (mean(last) - f64::from(minimum));
                    assert_near(*x, own);
                }
            }
        }
    }

    /// With the slots averaged too, meeting in every step is plain momentum descent on the mean of the functions.
    #[test]
    fn local_1_with_momentum_is_allreduce() {
        let (mut x, mut m) = (f64::from(START), 0.0);
        let ways = descend(Sync::Local(1), 30, MOMENTUM);
        for t in 0..30 {
            m = f64::from(MOMENTUM) * m + f64::from(CURVE) * (x - mean_minimum());
            x -= f64::from(RATE) * m;
            for way in &ways {
                assert_near(way[t].0, x);
                assert_near(way[t].1, m);
            }
        }
    }

    /// The paper's equations by hand, all on the right from before the step.
    #[test]
    fn elastic_averaging_follows_its_recursion() {
        for (period, momentum) in [(1, 0.0), (3, 0.0), (3, MOMENTUM)] {
            let alpha = 0.3;
            let ways = descend(Sync::Easgd { period, alpha }, 40, momentum);
            let (mut x, mut m, mut centre) = ([f64::from(START); 3], [0.0; 3], f64::from(START));
            for t in 0..40u64 {
                let pull = if t % period == 0 { alpha } else { 0.0 };
                let old = (x, centre);
                for i in 0..3 {
                    m[i] = f64::from(momentum) * m[i] + f64::from(CURVE) * (old.0[i] - f64::from(MINIMA[i]));
                    x[i] = old.0[i] - f64::from(RATE) * m[i] - pull * (old.0[i] - old.1);
                }
                centre = old.1 + pull * old.0.iter().map(|x| x - old.1).sum::<f64>();
                for (i, way) in ways.iter().enumerate() {
                    assert_near(way[t as usize].0, x[i]);
                    assert_near(way[t as usize].2, centre);
                }
            }
        }
    }

    /// At rest the centre is the mean of the ranks, which are spread around it as the springs allow.
    #[test]
    fn elastic_averaging_comes_to_rest_at_the_mean_of_the_minima() {
        let ways = descend(Sync::Easgd { period: 1, alpha: 0.3 }, 400, 0.0);
        for (way, minimum) in ways.iter().zip(MINIMA) {
            let (x, _, centre) = way[399];
            assert_near(centre, mean_minimum());
            // rate a (x - c_i) + alpha (x - centre) = 0
            let (spring, slope) = (0.3, f64::from(RATE * CURVE));
            assert_near(x, (slope * f64::from(minimum) + spring * mean_minimum()) / (slope + spring));
        }
    }

    #[test]
    fn running_statistics_pool_as_if_all_data_were_together() {
        let parts = [[1.0f32, 2.0, 4.0], [7.0, 7.5, 1.0], [-3.0, 0.0, 2.0]];
        let moments = |data: &[f32]| {
            let mean = data.iter().sum::<f32>() / data.len() as f32;
            (mean, data.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / data.len() as f32)
        };
        let meeting = Meeting { sums: Arc::default(), barrier: Arc::new(Barrier::new(3)), ranks: 3 };
        let (mean, var) = moments(parts.as_flattened());
        std::thread::scope(|scope| {
            for part in parts {
                let mut meeting = meeting.clone();
                scope.spawn(move || {
                    let own = moments(&part);
                    let mut running = [0.0, own.0, 1.0, own.1];
                    pool(&mut running, &[(0, 2)], &mut meeting).unwrap();
                    assert_near(running[1], f64::from(mean));
                    assert_near(running[3], f64::from(var));
                    assert_eq!((running[0], running[2]), (0.0, 1.0));
                });
            }
        });
    }
}
