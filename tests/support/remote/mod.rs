//! A test device with memory that the host cannot read directly. It runs the reference backend in a separate thread.
//!
//! This thread executes enqueued operations in order and with a delay. Copies to the host run in other threads and wait
//! only for marked buffers. A pass that is enqueued for the third time under the same key is replayed from a recording,
//! without calling the code that enqueued it.
//!
//! If the training loop forgets to mark a buffer, to wait for it, or to pass a new value before a replay, the results
//! are wrong here as they would be on a GPU.

mod buffer;
mod plan;
mod queue;

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::discriminant;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use backend::reference::{HostBuf, Reference};
use backend::update::Units;
use backend::{
    Arena, Backend, Buffer, CropRect, CrossEntropy, DeviceMemory, Error, Input, LossSums, Norms, ParamGroup, PassInput,
    PlanRequest, Planned, Queue, SoftLoss, SoftTargets, TensorDesc, Update,
};
pub use buffer::RemoteBuf;
use loaders::Dtype;
use queue::{Device, Memory, Queues, Task};

pub struct Remote {
    queues: Rc<Queues>,
    /// For each key of a pass: `None` after the first time, then the recording.
    passes: RefCell<HashMap<u64, Option<Vec<Task>>>>,
    /// The prefetched images, with their host address.
    ahead: RefCell<Option<(usize, Vec<f32>)>>,
    replayed: RefCell<usize>,
}

impl Remote {
    pub fn new() -> Self {
        Self {
            queues: Rc::new(Queues::new()),
            passes: RefCell::default(),
            ahead: RefCell::default(),
            replayed: RefCell::default(),
        }
    }

    pub fn replayed(&self) -> usize {
        *self.replayed.borrow()
    }

    fn enqueue(&self, work: impl Fn(&mut Device) -> Result<(), Error> + Send + Sync + 'static) -> Result<(), Error> {
        self.queues.enqueue(Task::new(work));
        Ok(())
    }

    /// Enqueues an operation that reads `from` and changes `to`.
    fn combine(
        &self,
        to: &mut RemoteBuf,
        from: &RemoteBuf,
        f: impl Fn(&Reference, &mut HostBuf, &HostBuf) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let (to, from) = (to.memory()?, from.memory()?);
        self.enqueue(move |_| f(&Reference, &mut to.lock(), &from.lock()))
    }

    fn change(
        &self,
        to: &mut RemoteBuf,
        f: impl Fn(&Reference, &mut HostBuf) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let to = to.memory()?;
        self.enqueue(move |_| f(&Reference, &mut to.lock()))
    }
}

/// Returns the host address of the images.
fn place_of(images: &Input<'_>) -> usize {
    match images {
        Input::Values(values) => values.as_ptr() as usize,
        Input::Bytes { pixels, .. } | Input::Stored { pixels, .. } => pixels.as_ptr() as usize,
        Input::Kept { .. } | Input::Held(_) => 0,
    }
}

/// Converts the images that the host passes to plain values. Images that the device keeps are taken from `device`.
fn values(images: &Input<'_>, device: Option<(&[u8], usize, usize)>, shape: (usize, usize, usize)) -> Vec<f32> {
    let (c, h, w) = shape;
    let plain = |n: usize, at: &dyn Fn(usize, usize, usize, usize) -> f32| {
        let mut all = Vec::with_capacity(n * c * h * w);
        for row in 0..n {
            for channel in 0..c {
                (0..h).for_each(|y| (0..w).for_each(|x| all.push(at(row, channel, y, x))));
            }
        }
        all
    };
    match images {
        Input::Values(values) => values.to_vec(),
        Input::Bytes { pixels, tables, .. } => {
            let n = pixels.len() / (c * h * w);
            plain(n, &|row, channel, y, x| tables[channel][pixels[((row * h + y) * w + x) * c + channel] as usize])
        }
        Input::Stored { pixels, dtype, pairs, .. } => {
            let size = dtype.bytes();
            let n = pixels.len() / (c * h * w * size);
            plain(n, &|row, channel, y, x| {
                let bytes = &pixels[(((row * h + y) * w + x) * c + channel) * size..][..size];
                let value = match dtype {
                    Dtype::U16 => f32::from(u16::from_le_bytes([bytes[0], bytes[1]])),
                    Dtype::I16 => f32::from(i16::from_le_bytes([bytes[0], bytes[1]])),
                    Dtype::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                    Dtype::U8 => panic!("bytes need tables"),
                };
                (value - pairs[channel][0]) / pairs[channel][1]
            })
        }
        Input::Kept { views, tables, .. } => {
            let (pictures, height, width) = device.expect("kept pictures");
            plain(views.len(), &|row, channel, y, x| {
                let CropRect { picture, top, left, mirrored } = views[row];
                let x = if mirrored == 1 { w - 1 - x } else { x };
                let (y, x) = (top + y as i32, left + x as i32);
                let inside = (0..height as i32).contains(&y) && (0..width as i32).contains(&x);
                let at = ((picture as usize * height + y.max(0) as usize) * width + x.max(0) as usize) * c + channel;
                tables[channel][if inside { pictures[at] as usize } else { 0 }]
            })
        }
        Input::Held(_) => panic!("this device cannot hold a batch"),
    }
}

impl DeviceMemory for Remote {
    type Buf = RemoteBuf;
    type Format = usize;
    type Fusion = ();

    fn alloc(&self, elems: usize) -> Result<RemoteBuf, Error> {
        Ok(RemoteBuf::new(self.queues.sender(), elems))
    }

    fn copy(&self, to: &mut RemoteBuf, from: &RemoteBuf) -> Result<(), Error> {
        self.combine(to, from, |reference, to, from| reference.copy(to, from))
    }

    fn zero(&self, to: &mut RemoteBuf) -> Result<(), Error> {
        self.change(to, |reference, to| reference.zero(to))
    }

    fn add(&self, to: &mut RemoteBuf, from: &RemoteBuf) -> Result<(), Error> {
        self.combine(to, from, |reference, to, from| reference.add(to, from))
    }

    fn scale(&self, to: &mut RemoteBuf, factor: f32) -> Result<(), Error> {
        self.change(to, move |reference, to| reference.scale(to, factor))
    }

    fn clamp(&self, x: &mut RemoteBuf, limit: f32) -> Result<(), Error> {
        self.change(x, move |reference, x| reference.clamp(x, limit))
    }

    fn lerp(&self, to: &mut RemoteBuf, from: &RemoteBuf, _: f32) -> Result<(), Error> {
        let (to, from) = (to.memory()?, from.memory()?);
        self.enqueue(move |device| {
            let weight = device.update.expect("an update was begun").1;
            Reference.lerp(&mut to.lock(), &from.lock(), weight)
        })
    }
}

impl Queue<Remote> for Remote {
    fn prefetch(&self, images: &Input<'_>) -> Result<(), Error> {
        if !matches!(images, Input::Kept { .. }) {
            *self.ahead.borrow_mut() = Some((place_of(images), values(images, None, self.queues.input())));
        }
        Ok(())
    }

    fn keep(&self, pictures: &[u8], height: usize, width: usize) -> Result<bool, Error> {
        let pictures = pictures.to_vec();
        self.enqueue(move |device| {
            device.kept = (pictures.clone(), height, width);
            Ok(())
        })?;
        Ok(true)
    }

    fn repeat(&self, _: &str, key: u64, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        let known = self.passes.borrow_mut().remove(&key);
        let tape = match known {
            None => {
                work()?;
                None
            }
            Some(None) => {
                self.queues.record();
                work()?;
                Some(self.queues.recorded())
            }
            Some(tape) => {
                *self.replayed.borrow_mut() += 1;
                tape
            }
        };
        tape.iter().flatten().for_each(|task| self.queues.enqueue(task.clone()));
        self.passes.borrow_mut().insert(key, tape);
        Ok(())
    }

    fn stamp(&self) -> Result<(), Error> {
        self.enqueue(|device| {
            device.stamps.push(Instant::now());
            Ok(())
        })
    }

    fn take_stamps(&self) -> Result<Vec<Instant>, Error> {
        self.queues.ask(|device| std::mem::take(&mut device.stamps))
    }

    fn mark(&self, buffer: &mut RemoteBuf) -> Result<(), Error> {
        self.queues.enqueue(buffer.mark());
        Ok(())
    }

    fn begin_update(&self, update: &Update, average: f32) -> Result<(), Error> {
        let update = *update;
        self.enqueue(move |device| {
            device.update = Some((update, average));
            Ok(())
        })
    }

    fn loss_sums(&self) -> Result<LossSums, Error> {
        self.queues.ask(|device| {
            let sums = device.sums.take().unwrap_or_default();
            let loss = if device.broken { f64::NAN } else { sums.loss };
            LossSums { loss, ..sums }
        })
    }
}

impl Backend for Remote {
    fn describe(&self) -> String {
        "remote (the reference, late)".into()
    }

    fn plan(&self, request: &PlanRequest<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error> {
        Ok(Box::new(plan::RemotePlan::new(self.queues.clone(), request)?))
    }

    fn upload(&self, images: &[f32], to: &mut RemoteBuf) -> Result<(), Error> {
        to.write(0, images)
    }

    fn download(&self, desc: &TensorDesc, from: &RemoteBuf) -> Result<Vec<f32>, Error> {
        let mut all = vec![0.0; desc.elems()];
        from.read(0, &mut all)?;
        Ok(all)
    }

    fn begin(&self, start: &PassInput<'_>, _: &TensorDesc, to: &mut RemoteBuf) -> Result<(), Error> {
        let (to, now) = (to.memory()?, queue::PassInputs::of(start));
        let Input::Kept { views, tables, .. } = start.images else {
            let images = values(&start.images, None, self.queues.input());
            if let Some((_, ahead)) = self.ahead.take().filter(|(place, _)| *place == place_of(&start.images)) {
                assert_eq!(ahead, images, "prefetched images have changed");
            }
            return self.enqueue(move |device| {
                device.now = now.clone();
                to.lock().0[..images.len()].copy_from_slice(&images);
                Ok(())
            });
        };
        let (views, tables, shape) = (views.to_vec(), tables.to_vec(), self.queues.input());
        self.enqueue(move |device| {
            device.now = now.clone();
            let (pictures, height, width) = &device.kept;
            let images = Input::Kept { views: &views, tables: &tables, mix: None };
            let images = values(&images, Some((pictures, *height, *width)), shape);
            to.lock().0[..images.len()].copy_from_slice(&images);
            Ok(())
        })
    }

    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &RemoteBuf,
        dx: Option<&mut RemoteBuf>,
    ) -> Result<Option<LossSums>, Error> {
        let (desc, weight, x, dx) = (*desc, ask.weight, x.memory()?, dx.map(|dx| dx.memory()).transpose()?);
        self.enqueue(move |device| {
            // a replay must use the labels and the scale of its own pass, not those of the recording
            let (labels, smoothing, scale) = device.now.loss.as_ref().expect("a loss was begun");
            let ask = CrossEntropy { labels, smoothing: *smoothing, scale: *scale, weight };
            let mut dx = dx.as_ref().map(|dx| dx.lock());
            device.sums = Reference.cross_entropy(&desc, ask, &x.lock(), dx.as_deref_mut())?;
            Ok(())
        })?;
        Ok(None)
    }

    fn soft_loss(
        &self,
        desc: &TensorDesc,
        ask: SoftLoss<'_>,
        x: &RemoteBuf,
        teacher: Option<(&TensorDesc, &RemoteBuf)>,
        dx: Option<&mut RemoteBuf>,
    ) -> Result<Option<LossSums>, Error> {
        let (objective, weight, desc, x) = (ask.objective, ask.weight, *desc, x.memory()?);
        let (teacher, dx) = (
            teacher.map(|(desc, t)| Ok::<_, Error>((*desc, t.memory()?))).transpose()?,
            dx.map(|dx| dx.memory()).transpose()?,
        );
        self.enqueue(move |device| {
            let (labels, _, scale) = device.now.loss.as_ref().expect("a loss was begun");
            let targets = SoftTargets { labels, table: device.now.targets.as_ref().expect("targets were begun") };
            let ask = SoftLoss { targets, objective, scale: *scale, weight };
            let teacher = teacher.as_ref().map(|(desc, scores)| (desc, scores.lock()));
            let teacher = teacher.as_ref().map(|(desc, scores)| (*desc, &**scores));
            let mut dx = dx.as_ref().map(|dx| dx.lock());
            device.sums = Reference.soft_loss(&desc, ask, &x.lock(), teacher, dx.as_deref_mut())?;
            Ok(())
        })?;
        Ok(None)
    }

    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut RemoteBuf,
    ) -> Result<(), Error> {
        let memories = |arena: &Arena<Self>| arena.buckets.iter().map(RemoteBuf::memory).collect::<Result<Vec<_>, _>>();
        let name = update.rule.kernel().name;
        let (norms, weights, gradients, to) = (norms.clone(), memories(weights)?, memories(gradients)?, to.memory()?);
        self.enqueue(move |device| {
            let copies = |buckets: &[Arc<Memory>]| Arena {
                buckets: buckets.iter().map(|c| HostBuf(c.lock().0.clone())).collect(),
            };
            let begun = device.update.expect("an update was begun").0;
            let second = begun.rule.second_pass().filter(|second| second.kernel().name == name);
            let update = Update { rule: second.unwrap_or(begun.rule), ..begun };
            Reference.rates(&norms, &update, &copies(&weights), &copies(&gradients), &mut to.lock())
        })
    }

    fn limit_units(&self, units: &Units, w: &RemoteBuf, g: &mut RemoteBuf) -> Result<(), Error> {
        let (units, w, g) = (units.clone(), w.memory()?, g.memory()?);
        self.enqueue(move |_| Reference.limit_units(&units, &w.lock(), &mut g.lock()))
    }

    fn update(
        &self,
        update: &Update,
        groups: &[ParamGroup],
        rates: &RemoteBuf,
        w: &mut RemoteBuf,
        g: &RemoteBuf,
        slots: &mut [&mut RemoteBuf],
    ) -> Result<bool, Error> {
        let (rule, groups, rates, w, g) = (update.rule, groups.to_vec(), rates.memory()?, w.memory()?, g.memory()?);
        let slots = slots.iter().map(|slot| slot.memory()).collect::<Result<Vec<_>, _>>()?;
        self.enqueue(move |device| {
            let mut held: Vec<_> = slots.iter().map(|slot| slot.lock()).collect();
            let mut slots: Vec<&mut HostBuf> = held.iter_mut().map(|slot| &mut **slot).collect();
            let update = device.update.expect("an update was begun").0;
            assert_eq!(discriminant(&update.rule), discriminant(&rule));
            // a replay uses the current rule of the device, not the recorded one; the kernel's name tells which pass it is
            let second = update.rule.second_pass().filter(|second| second.kernel().name == rule.kernel().name);
            let update = Update { rule: second.unwrap_or(update.rule), ..update };
            let finite = Reference.update(&update, &groups, &rates.lock(), &mut w.lock(), &g.lock(), &mut slots)?;
            device.broken |= !finite;
            Ok(())
        })?;
        Ok(true)
    }

    fn queue(&self) -> Option<&dyn Queue<Self>> {
        Some(self)
    }
}
