//! Tests of the strategies on several ranks with known trajectories. Rank i minimises f_i(x) = a/2 (x - c_i)^2. Each
//! rank is a thread, and a barrier replaces MPI.

use std::sync::{Arc, Barrier, Mutex};

use backend::reference::{HostBuf, Reference};
use backend::{Arena, Error};

use super::{Easgd, LocalSgd, Strategy, pool};
use crate::train::reduce::ranks::RankSum;

/// Sums over ranks that are threads of this test.
#[derive(Clone)]
struct Threads {
    sums: Arc<Mutex<Vec<f64>>>,
    barrier: Arc<Barrier>,
    ranks: usize,
}

impl RankSum for Threads {
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
    Arena { buckets: values.iter().map(|v| HostBuf(vec![*v])).collect() }
}

const CURVE: f32 = 0.5;
const RATE: f32 = 0.2;
const MOMENTUM: f32 = 0.9;
/// The parameter c_i at which each rank's function is smallest.
const MINIMA: [f32; 3] = [1.0, -2.0, 4.0];
const START: f32 = 10.0;

/// The state of a rank after a step: its parameter x, its momentum, and the centre of elastic averaging.
struct State {
    x: f32,
    momentum: f32,
    centre: f32,
}

/// A strategy whose centre the tests can read. Local SGD has no centre.
trait Tested: Strategy<Reference> {
    fn centre(&self) -> f32;
}

impl Tested for LocalSgd {
    fn centre(&self) -> f32 {
        f32::NAN
    }
}

impl Tested for Easgd<Reference> {
    fn centre(&self) -> f32 {
        self.centre.buckets[0].0[0]
    }
}

fn easgd(period: u64, alpha: f64) -> impl Fn(&Arena<Reference>) -> Easgd<Reference> + Sync + Copy {
    move |weights| Easgd::new(period, alpha, &Reference, weights).unwrap()
}

/// Runs `steps` steps of gradient descent on every rank's own function. The parameters are in two buckets, and the
/// second one stays 0.
fn descend<S: Tested>(strategy: impl Fn(&Arena<Reference>) -> S + Sync, steps: u64, momentum: f32) -> Vec<Vec<State>> {
    let ranks = MINIMA.len();
    let threads = Threads { sums: Arc::default(), barrier: Arc::new(Barrier::new(ranks)), ranks };
    let run = |minimum: f32, mut threads: Threads| {
        let (mut x, mut m) = (arena(&[START, 0.0]), arena(&[0.0, 0.0]));
        let mut strategy = strategy(&x);
        let mut states = Vec::new();
        for done in 0..steps {
            let gradient = CURVE * (x.buckets[0].0[0] - minimum);
            let synchronises = strategy.synchronises(done);
            if synchronises {
                strategy.before_update(&x, &mut threads).unwrap();
            }
            m.buckets[0].0[0] = momentum * m.buckets[0].0[0] + gradient;
            x.buckets[0].0[0] -= RATE * m.buckets[0].0[0];
            if synchronises {
                strategy.after_update(&mut x, &mut std::iter::once(&mut m), &mut threads).unwrap();
            }
            assert_eq!(x.buckets[1].0[0], 0.0);
            states.push(State { x: x.buckets[0].0[0], momentum: m.buckets[0].0[0], centre: strategy.centre() });
        }
        states
    };
    std::thread::scope(|scope| {
        let ranks = MINIMA.map(|minimum| {
            scope.spawn({
                let (run, threads) = (&run, threads.clone());
                move || run(minimum, threads)
            })
        });
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

/// Without momentum, k steps of learning rate r lead from x to x_i = c_i + (1 - r a)^k (x - c_i). All ranks have the
/// same curvature a. So after t steps with any period of synchronisation, the distance between the mean of the ranks
/// and the mean of the minima c_i has shrunk by the factor (1 - r a)^t.
#[test]
fn local_sgd_follows_the_closed_form() {
    let shrink = 1.0 - f64::from(RATE * CURVE);
    for period in [1, 4, 5] {
        for (states, minimum) in descend(|_| LocalSgd { period }, 23, 0.0).iter().zip(MINIMA) {
            for (t, state) in (1..).zip(states) {
                let mean = |t: u64| mean_minimum() + shrink.powi(t as i32) * (f64::from(START) - mean_minimum());
                let last = t - t % period;
                let own = f64::from(minimum) + shrink.powi((t - last) as i32) * (mean(last) - f64::from(minimum));
                assert_near(state.x, own);
            }
        }
    }
}

/// If the ranks also average the optimizer state in every step, the result is momentum descent on the mean of the
/// functions.
#[test]
fn local_1_with_momentum_is_allreduce() {
    let (mut x, mut m) = (f64::from(START), 0.0);
    let ranks = descend(|_| LocalSgd { period: 1 }, 30, MOMENTUM);
    for t in 0..30 {
        m = f64::from(MOMENTUM) * m + f64::from(CURVE) * (x - mean_minimum());
        x -= f64::from(RATE) * m;
        for states in &ranks {
            assert_near(states[t].x, x);
            assert_near(states[t].momentum, m);
        }
    }
}

/// Computes the equations of elastic averaging directly. All values on their right sides are from before the step.
#[test]
fn elastic_averaging_follows_its_recursion() {
    for (period, momentum) in [(1, 0.0), (3, 0.0), (3, MOMENTUM)] {
        let alpha = 0.3;
        let ranks = descend(easgd(period, alpha), 40, momentum);
        let (mut x, mut m, mut centre) = ([f64::from(START); 3], [0.0; 3], f64::from(START));
        for t in 0..40u64 {
            let pull = if t % period == 0 { alpha } else { 0.0 };
            let old = (x, centre);
            for i in 0..3 {
                m[i] = f64::from(momentum) * m[i] + f64::from(CURVE) * (old.0[i] - f64::from(MINIMA[i]));
                x[i] = old.0[i] - f64::from(RATE) * m[i] - pull * (old.0[i] - old.1);
            }
            centre = old.1 + pull * old.0.iter().map(|x| x - old.1).sum::<f64>();
            for (i, states) in ranks.iter().enumerate() {
                assert_near(states[t as usize].x, x[i]);
                assert_near(states[t as usize].centre, centre);
            }
        }
    }
}

/// At equilibrium the centre is the mean of the ranks, and the ranks have known distances from it.
#[test]
fn elastic_averaging_comes_to_rest_at_the_mean_of_the_minima() {
    let ranks = descend(easgd(1, 0.3), 400, 0.0);
    for (states, minimum) in ranks.iter().zip(MINIMA) {
        let State { x, centre, .. } = states[399];
        assert_near(centre, mean_minimum());
        // at rest, slope (x - minimum) + spring (x - centre) = 0
        let (spring, slope) = (0.3, f64::from(RATE * CURVE));
        assert_near(x, (slope * f64::from(minimum) + spring * mean_minimum()) / (slope + spring));
    }
}

#[test]
fn the_synchronised_model_is_the_mean_or_the_centre() {
    let threads = Threads { sums: Arc::default(), barrier: Arc::new(Barrier::new(3)), ranks: 3 };
    std::thread::scope(|scope| {
        for own in [1.0, 2.0, 6.0] {
            let mut threads = threads.clone();
            scope.spawn(move || {
                let (mut weights, mut to) = (arena(&[own, 4.0]), arena(&[9.0, 9.0]));
                let values = |arena: &Arena<Reference>| [0, 1].map(|bucket| arena.buckets[bucket].0[0]);
                LocalSgd { period: 5 }.synchronised(&Reference, &weights, &mut to, &mut threads).unwrap();
                assert_eq!((values(&to), values(&weights)), ([3.0, 4.0], [own, 4.0]));
                let easgd = Easgd::new(5, 0.3, &Reference, &weights).unwrap();
                weights.buckets[0].0[0] = 7.0;
                easgd.synchronised(&Reference, &weights, &mut to, &mut threads).unwrap();
                assert_eq!(values(&to), [own, 4.0]);
            });
        }
    });
}

#[test]
fn running_statistics_pool_as_if_all_data_were_together() {
    let parts = [[1.0f32, 2.0, 4.0], [7.0, 7.5, 1.0], [-3.0, 0.0, 2.0]];
    let moments = |data: &[f32]| {
        let mean = data.iter().sum::<f32>() / data.len() as f32;
        (mean, data.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / data.len() as f32)
    };
    let threads = Threads { sums: Arc::default(), barrier: Arc::new(Barrier::new(3)), ranks: 3 };
    let (mean, var) = moments(parts.as_flattened());
    std::thread::scope(|scope| {
        for part in parts {
            let mut threads = threads.clone();
            scope.spawn(move || {
                let own = moments(&part);
                let mut running = [0.0, own.0, 1.0, own.1];
                pool(&mut running, &[(0, 2)], &mut threads).unwrap();
                assert_near(running[1], f64::from(mean));
                assert_near(running[3], f64::from(var));
                assert_eq!((running[0], running[2]), (0.0, 1.0));
            });
        }
    });
}
