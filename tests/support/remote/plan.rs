//! Operations that are planned on the remote device. The host keeps only a handle to each plan.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use backend::reference::{HostBuf, Reference};
use backend::{Arena, Backend, Buffer, DrawKey, Error, Gradients, Pass, PlanRequest, Planned, Slot, TensorDesc};
use net::{Op, Shape};

use super::queue::{Memory, Queues, Task};
use super::{Remote, RemoteBuf};

/// The host's handle to a plan.
pub struct RemotePlan {
    queues: Rc<Queues>,
    number: u64,
    output: TensorDesc,
    formats: Vec<usize>,
    input_with_gradient_in_dy: Option<usize>,
    adds_two_gradients: bool,
    /// Number of channels of a batch normalisation, otherwise 0.
    channels: usize,
    /// Sums and count of the last training pass.
    statistics: Arc<Mutex<(Vec<f64>, u64)>>,
}

/// Everything that a pass needs. The parameters are in device memory.
#[derive(Clone)]
struct PassMemory {
    number: u64,
    params: Vec<Arc<Memory>>,
    slots: Vec<Slot>,
    running: std::ops::Range<usize>,
    training: bool,
    frozen: bool,
}

fn memories(buffers: &[&RemoteBuf]) -> Result<Vec<Arc<Memory>>, Error> {
    buffers.iter().map(|buffer| buffer.memory()).collect()
}

fn take(memory: &[Arc<Memory>]) -> Vec<HostBuf> {
    memory.iter().map(|memory| HostBuf(memory.lock().0.clone())).collect()
}

impl PassMemory {
    fn of(plan: &RemotePlan, pass: &Pass<'_, Remote>) -> Result<Self, Error> {
        if pass.across.is_some() {
            let why = "statistics over all ranks are not for this device".into();
            return Err(Error::Unsupported { op: "batch normalisation".into(), why });
        }
        let params = memories(&pass.params.buckets.iter().filter(|bucket| !bucket.is_empty()).collect::<Vec<_>>())?;
        let running = pass.running_at..pass.running_at + pass.running.len();
        Ok(Self {
            number: plan.number,
            params,
            slots: pass.slots.to_vec(),
            running,
            training: pass.training,
            frozen: pass.frozen,
        })
    }

    /// Runs `f` with the plan and a pass of the reference backend.
    fn with(
        &self,
        device: &mut super::queue::Device,
        f: impl FnOnce(&mut dyn Planned<Reference>, &Pass<'_, Reference>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let now = device.now.clone();
        let params = Arena { buckets: take(&self.params) };
        let pass = Pass {
            backend: &Reference,
            params: &params,
            slots: &self.slots,
            running: &now.running[self.running.clone()],
            running_at: self.running.start,
            training: self.training,
            frozen: self.frozen,
            key: DrawKey { seed: now.seed, epoch: now.epoch, ids: &now.ids },
            across: None,
        };
        f(device.plans.get_mut(&self.number).expect("planned").as_mut(), &pass)
    }
}

impl RemotePlan {
    pub fn new(queues: Rc<Queues>, request: &PlanRequest<'_, Remote>) -> Result<Self, Error> {
        let number = queues.number(request.shapes[0]);
        let (name, op, index) = (request.name.to_string(), request.op.clone(), request.index);
        let (shapes, x): (Vec<Shape>, Vec<TensorDesc>) = (request.shapes.to_vec(), request.x.to_vec());
        let (train, wants_dx, formats) = (request.train, request.wants_dx, request.formats.map(<[usize]>::to_vec));
        let bn_groups = request.bn_groups;
        let channels = if matches!(op, Op::Norm(_)) { shapes[0].c } else { 0 };
        let outline = queues.ask(move |device| {
            let formats = formats.as_deref();
            let alone = PlanRequest::alone(&name, &op, &shapes, &x);
            let request = PlanRequest { train, wants_dx, formats, index, bn_groups, ..alone };
            let plan = Reference.plan(&request)?;
            let outline = (plan.output(), plan.formats(), plan.input_with_gradient_in_dy(), plan.adds_two_gradients());
            device.plans.insert(number, plan);
            Ok::<_, Error>(outline)
        })??;
        let (output, formats, input_with_gradient_in_dy, adds_two_gradients) = outline;
        Ok(Self {
            queues,
            number,
            output,
            formats,
            input_with_gradient_in_dy,
            adds_two_gradients,
            channels,
            statistics: Arc::default(),
        })
    }
}

impl Planned<Remote> for RemotePlan {
    fn output(&self) -> TensorDesc {
        self.output
    }

    fn formats(&self) -> Vec<usize> {
        self.formats.clone()
    }

    fn state_bytes(&self) -> usize {
        0
    }

    fn implementation(&self) -> String {
        "the reference's".into()
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        self.input_with_gradient_in_dy
    }

    fn adds_two_gradients(&self) -> bool {
        self.adds_two_gradients
    }

    fn forward(&mut self, pass: &Pass<'_, Remote>, x: &[&RemoteBuf], y: &mut RemoteBuf) -> Result<(), Error> {
        let (site, x, y) = (PassMemory::of(self, pass)?, memories(x)?, y.memory()?);
        let (channels, statistics) = (self.channels, self.statistics.clone());
        self.queues.enqueue(Task::new(move |device| {
            let inputs = take(&x);
            site.with(device, |plan, pass| {
                plan.forward(pass, &inputs.iter().collect::<Vec<_>>(), &mut y.lock())?;
                if channels > 0 && pass.takes_statistics() {
                    let mut sums = vec![0.0; 2 * channels];
                    let count = plan.pool_statistics(pass.running, &mut sums);
                    *statistics.lock().unwrap() = (sums, count);
                }
                Ok(())
            })
        }));
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Remote>, g: Gradients<'_, Remote>) -> Result<(), Error> {
        let (site, x, y) = (PassMemory::of(self, pass)?, memories(g.x)?, g.y.memory()?);
        let (dy, dy2) = (g.dy.memory()?, g.dy2.map(RemoteBuf::memory).transpose()?);
        let dx = g.dx.into_iter().map(|dx| dx.map(|dx| dx.memory()).transpose());
        let dx = dx.collect::<Result<Vec<_>, _>>()?;
        // a bucket that was already handed over has no gradients of this operation, so an empty buffer replaces it
        let buckets = g.dparams.buckets.iter().map(|bucket| bucket.memory().ok()).collect::<Vec<_>>();
        self.queues.enqueue(Task::new(move |device| {
            let (inputs, output) = (take(&x), HostBuf(y.lock().0.clone()));
            let second = dy2.as_ref().map(|dy2| HostBuf(dy2.lock().0.clone()));
            let held = buckets.iter().map(|bucket| HostBuf(bucket.as_ref().map_or(Vec::new(), |c| c.lock().0.clone())));
            let mut dparams = Arena { buckets: held.collect() };
            site.with(device, |plan, pass| {
                let mut dx: Vec<_> = dx.iter().map(|dx| dx.as_ref().map(|dx| dx.lock())).collect();
                let g = Gradients {
                    x: &inputs.iter().collect::<Vec<_>>(),
                    y: &output,
                    dy: &mut *dy.lock(),
                    dy2: second.as_ref(),
                    dx: dx.iter_mut().map(Option::as_deref_mut).collect(),
                    dparams: &mut dparams,
                };
                plan.backward(pass, g)
            })?;
            for (bucket, values) in buckets.iter().zip(dparams.buckets) {
                bucket.iter().for_each(|bucket| bucket.lock().0.copy_from_slice(&values.0));
            }
            Ok(())
        }));
        Ok(())
    }

    fn pool_statistics(&self, _: &[f32], sums: &mut [f64]) -> u64 {
        let statistics = self.statistics.lock().unwrap();
        sums.iter_mut().zip(&statistics.0).for_each(|(sum, own)| *sum += own);
        statistics.1
    }
}
