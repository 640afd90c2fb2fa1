//! The thread that computes, its state between operations, and the tasks sent to it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use backend::reference::{HostBuf, Reference};
use backend::{Error, LossSums, PassInput, Planned, Update};
use net::Shape;

/// Delay before every operation.
const LATE: Duration = Duration::from_micros(20);

#[derive(Default)]
pub struct Memory(Mutex<HostBuf>);

impl Memory {
    pub fn zeroed(elems: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(HostBuf(vec![0.0; elems]))))
    }

    pub fn lock(&self) -> MutexGuard<'_, HostBuf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A point in the queue that other threads can wait for. Counts how often it was enqueued and how often it was reached.
#[derive(Default)]
pub struct Event {
    counts: Mutex<[u64; 2]>,
    reached: Condvar,
}

impl Event {
    fn enqueued(&self) {
        self.counts.lock().unwrap()[0] += 1;
    }

    pub fn reach(&self) {
        self.counts.lock().unwrap()[1] += 1;
        self.reached.notify_all();
    }

    /// Returns how often the event has been enqueued so far, which is the number to pass to [`Self::wait`].
    pub fn last(&self) -> u64 {
        self.counts.lock().unwrap()[0]
    }

    pub fn wait(&self, until: u64) {
        let counts = self.counts.lock().unwrap();
        drop(self.reached.wait_while(counts, |counts| counts[1] < until).unwrap());
    }
}

#[derive(Clone, Default)]
pub struct PassInputs {
    pub seed: u64,
    pub epoch: u32,
    pub ids: Vec<u64>,
    pub running: Vec<f32>,
    /// Labels, label smoothing and scale.
    pub loss: Option<(Vec<u32>, f32, f32)>,
    /// The table of soft targets.
    pub targets: Option<Vec<f32>>,
}

impl PassInputs {
    pub fn of(start: &PassInput<'_>) -> Self {
        let loss = start.loss.map(|ask| (ask.labels.to_vec(), ask.smoothing, ask.scale));
        let (seed, epoch, ids) = (start.key.seed, start.key.epoch, start.key.ids.to_vec());
        let targets = start.targets.map(|targets| targets.table.to_vec());
        Self { seed, epoch, ids, running: start.running.to_vec(), loss, targets }
    }
}

#[derive(Default)]
pub struct Device {
    pub plans: HashMap<u64, Box<dyn Planned<Reference>>>,
    pub now: PassInputs,
    /// The update of the current optimizer step, and the weight for the weight averages.
    pub update: Option<(Update, f32)>,
    pub sums: Option<LossSums>,
    /// Time stamps since they were last taken.
    pub stamps: Vec<Instant>,
    /// True if an update has produced a parameter that is not finite.
    pub broken: bool,
    /// The images that the device keeps during a run, and their height and width.
    pub kept: (Vec<u8>, usize, usize),
    /// The message of the first operation that failed.
    failed: Option<String>,
}

type Work = Arc<dyn Fn(&mut Device) -> Result<(), Error> + Send + Sync>;

/// An operation, and its event if other threads wait for it.
#[derive(Clone)]
pub struct Task {
    work: Work,
    event: Option<Arc<Event>>,
}

impl Task {
    pub fn new(work: impl Fn(&mut Device) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self { work: Arc::new(work), event: None }
    }

    pub fn mark(event: &Arc<Event>) -> Self {
        let own = event.clone();
        let work: Work = Arc::new(move |_| {
            own.reach();
            Ok(())
        });
        Self { work, event: Some(event.clone()) }
    }
}

/// The channel to the thread that computes.
pub type TaskSender = Sender<Task>;

/// Sends operations to the device's thread, or stores them in `tape` while a pass is recorded.
pub struct Queues {
    line: TaskSender,
    tape: RefCell<Option<Vec<Task>>>,
    plans: Cell<u64>,
    input: Cell<(usize, usize, usize)>,
}

impl Queues {
    pub fn new() -> Self {
        let (line, tasks): (TaskSender, Receiver<Task>) = channel();
        std::thread::spawn(move || {
            let mut device = Device::default();
            for task in tasks {
                std::thread::sleep(LATE);
                if let Err(error) = (task.work)(&mut device) {
                    device.failed.get_or_insert(error.to_string());
                }
            }
        });
        Self { line, tape: RefCell::default(), plans: Cell::new(0), input: Cell::default() }
    }

    pub fn sender(&self) -> TaskSender {
        self.line.clone()
    }

    /// Returns a number for a new plan. Also keeps `shape` for the first plan, because that is the shape of the network's input.
    pub fn number(&self, shape: Shape) -> u64 {
        let number = self.plans.get();
        if number == 0 {
            self.input.set((shape.c, shape.h, shape.w));
        }
        self.plans.set(number + 1);
        number
    }

    /// Channels, height and width of the network's input.
    pub fn input(&self) -> (usize, usize, usize) {
        self.input.get()
    }

    pub fn enqueue(&self, task: Task) {
        match self.tape.borrow_mut().as_mut() {
            Some(tape) => tape.push(task),
            None => send(&self.line, task),
        }
    }

    /// Starts a recording: until [`Queues::recorded`], operations are recorded instead of executed.
    pub fn record(&self) {
        *self.tape.borrow_mut() = Some(Vec::new());
    }

    pub fn recorded(&self) -> Vec<Task> {
        self.tape.take().unwrap_or_default()
    }

    /// Runs `f` on the device after everything enqueued so far and waits for its result.
    pub fn ask<R: Send + 'static>(&self, f: impl Fn(&mut Device) -> R + Send + Sync + 'static) -> Result<R, Error> {
        assert!(self.tape.borrow().is_none(), "the host must not wait while a pass is recorded");
        ask(&self.line, f)
    }
}

fn send(line: &TaskSender, task: Task) {
    if let Some(event) = &task.event {
        event.enqueued();
    }
    line.send(task).expect("the compute thread is running");
}

/// Runs `f` on the device after everything enqueued so far and waits for its result. Returns an error if an earlier operation failed.
pub fn ask<R: Send + 'static>(
    line: &TaskSender,
    f: impl Fn(&mut Device) -> R + Send + Sync + 'static,
) -> Result<R, Error> {
    let (answer, answered) = channel();
    let task = Task::new(move |device| {
        let result = match &device.failed {
            Some(why) => Err(why.clone()),
            None => Ok(f(device)),
        };
        // the receiver may be gone
        let _ = answer.send(result);
        Ok(())
    });
    send(line, task);
    let answer = answered.recv().expect("the compute thread is running");
    answer.map_err(|why| Error::Unsupported { op: "the remote device".into(), why })
}
