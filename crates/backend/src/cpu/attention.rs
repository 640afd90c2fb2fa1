//! Multi-head self-attention, planned for one batch size.

use std::rc::Rc;

use net::{Attention, Windows};

use super::attention_window::{Backward, Cells, Forward, OUTSIDE, Sizes, Terms, Window};
use super::buf::{AlignedBuf, Scratch};
use super::device::Cpu;
use super::divide::{Items, PerThread, SharedSlice};
use super::isa::Isa;
use super::layout::Format;
use super::relayout;
use super::threads::Threads;
use super::vector::{Eight, Job, Portable, Sixteen, Vectors};
use crate::attention::{self, Mlp};
use crate::memory::store;
use crate::{Arena, Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// The instruction set that the kernels use.
#[derive(Clone, Copy)]
enum Set {
    Portable(Portable),
    Eight(Eight),
    Sixteen(Sixteen),
}

impl Set {
    fn of(cpu: &Cpu) -> Self {
        let wide = Sixteen::detect().filter(|_| cpu.isa >= Isa::Avx512).map(Self::Sixteen);
        wide.or(Eight::detect().map(Self::Eight)).unwrap_or(Self::Portable(Portable))
    }

    fn run<J: Job>(self, job: J) -> J::Output {
        match self {
            Self::Portable(set) => set.run(job),
            Self::Eight(set) => set.run(job),
            Self::Sixteen(set) => set.run(job),
        }
    }
}

/// State that the passes of all heads share.
struct Heads {
    set: Set,
    op: Attention,
    sizes: Sizes,
    /// Number of positions in x and in y.
    planes: [usize; 2],
    /// For each window and cell, the position in the plane of x, and in the plane of y.
    places: [Vec<u32>; 2],
    terms: Option<Terms>,
    /// The factor of each head.
    scales: Vec<f32>,
}

impl Heads {
    /// Returns the data for a head's passes over a window. `item` is the number of the head, counted over all samples.
    fn window(&self, item: usize, window: usize) -> Window<'_> {
        let (head, area) = (item % self.op.heads, self.sizes.positions);
        let [x, y] = [0, 1]
            .map(|tensor| Cells { places: &self.places[tensor][window * area..][..area], plane: self.planes[tensor] });
        let terms = self.terms.as_ref().map(|terms| terms.of(head, window, &self.sizes));
        Window { sizes: self.sizes, x, y, scale: self.scales[head], cosine: self.op.cosine, terms }
    }

    /// Returns the number of elements of a head in x (for queries, keys or values) and in y.
    fn elems(&self) -> [usize; 2] {
        self.planes.map(|plane| plane * self.sizes.channels)
    }
}

struct Plan {
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    windows: Windows,
    heads: Heads,
    /// The continuous bias's sigmoids for each position difference and head, from the last forward pass.
    sigmoids: Vec<f64>,
    formats: Vec<Format>,
    /// For each query (in each sample, head and window): the greatest product with a key, and 1 / the sum of
    /// exponentials in the softmax.
    statistics: Vec<[f32; 2]>,
    /// For each sample and head: the gradients of the bias for each difference of positions, then the gradient of the
    /// factor. Samples are added in order, so that the result does not depend on the number of threads.
    partial: Vec<f64>,
    /// Number of elements in a thread's workspace.
    workspace: usize,
    scratch: Rc<Scratch>,
}

pub(super) fn plan(cpu: &Cpu, op: &Attention, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (x, y, windows) = (r.x[0], relayout::output_layout(cpu, &r.x[0], r.output()?), op.windows(r.x[0].shape));
    let sizes = Sizes { positions: windows.area(), channels: op.head_channels(x.shape.c), block: x.block };
    let cells = || (0..windows.count()).flat_map(|window| (0..windows.area()).map(move |cell| (window, cell)));
    let inputs = cells().map(|(window, cell)| windows.input(window, cell) as u32).collect();
    let outputs = cells().map(|(window, cell)| windows.output(window, cell).map_or(OUTSIDE, |at| at as u32)).collect();
    let (params, trained) = (r.op.params(x.shape), r.train && !r.op.params(x.shape).is_empty());
    let dbias = if trained { sizes.products() } else { 0 };
    let workspace = sizes.workspace(r.train) + dbias;
    cpu.scratch.reserve(cpu.threads.0 * workspace, r.name)?;
    let heads = Heads {
        set: Set::of(cpu),
        op: *op,
        sizes,
        planes: [x.shape.plane(), y.shape.plane()],
        places: [inputs, outputs],
        terms: Terms::new(op, &windows, &sizes),
        scales: vec![op.scale(x.shape.c) as f32; op.heads],
    };
    Ok(Box::new(Plan {
        threads: cpu.threads,
        x,
        y,
        sigmoids: vec![0.0; attention::sigmoid_count(op, &windows)],
        windows,
        heads,
        formats: params.iter().map(|param| Format::Plain(param.elems())).collect(),
        statistics: vec![[0.0; 2]; x.n * op.heads * x.shape.plane()],
        partial: vec![0.0; if trained { x.n * op.heads * (windows.differences() + 1) } else { 0 }],
        workspace,
        scratch: cpu.scratch.clone(),
    }))
}

impl Plan {
    /// Returns the number of heads, counted over all samples.
    fn items(&self) -> usize {
        self.y.n * self.heads.op.heads
    }

    /// Computes the bias terms and the factors of the heads from the parameters, if the operation has them.
    fn prepare(&mut self, pass: &Pass<'_, Cpu>) {
        let params: Vec<&[f32]> = pass.slots.iter().map(|slot| pass.params.get(*slot)).collect();
        let Heads { op, sizes, terms, scales, .. } = &mut self.heads;
        if let Some(mlp) = Mlp::new(op, &params) {
            let differences = self.windows.coordinates();
            self.threads.each_item(&mut self.sigmoids, op.heads, |at, row| mlp.sigmoids(differences[at], row));
        }
        if let (Some(terms), Some(table)) = (terms, attention::bias_table(op, &params, &self.sigmoids)) {
            terms.fill(&table, op.heads, sizes);
        }
        if op.cosine {
            let factors = attention::cosine_factors(op, &params);
            scales.iter_mut().zip(factors).for_each(|(to, factor)| *to = factor as f32);
        }
    }

    /// Adds the partial results of all samples and writes the gradients of the parameters.
    fn store_gradients(&self, pass: &Pass<'_, Cpu>, dparams: &mut Arena<Cpu>) {
        let (op, differences) = (&self.heads.op, self.windows.differences());
        let heads = op.heads;
        let (mut dtable, mut dscales) = (vec![0.0; differences * heads], vec![0.0; heads]);
        for (item, partial) in self.partial.chunks_exact(differences + 1).enumerate() {
            let head = item % heads;
            dscales[head] += partial[differences];
            dtable.iter_mut().skip(head).step_by(heads).zip(partial).for_each(|(sum, d)| *sum += d);
        }
        let params: Vec<&[f32]> = pass.slots.iter().map(|slot| pass.params.get(*slot)).collect();
        let gradients = attention::gradients(op, &self.windows, &params, &self.sigmoids, &dtable, dscales);
        gradients.iter().zip(pass.slots).for_each(|(gradient, slot)| store(dparams.get_mut(*slot), gradient));
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        self.formats.clone()
    }

    fn state_bytes(&self) -> usize {
        let places: usize = self.heads.places.iter().map(|places| size_of_val(&places[..])).sum();
        let terms = self.heads.terms.as_ref().map_or(0, Terms::bytes);
        let sums = size_of_val(&self.partial[..]) + size_of_val(&self.sigmoids[..]);
        size_of_val(&self.statistics[..]) + sums + places + terms
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::INPUT
    }

    fn implementation(&self) -> String {
        "own products".into()
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        self.prepare(pass);
        let mut statistics = std::mem::take(&mut self.statistics);
        let (heads, [each, out], plane) = (&self.heads, self.heads.elems(), self.x.shape.plane());
        let (x, mut scratch) = (x[0].as_slice(), self.scratch.borrow());
        let divided = (
            Items::new(&mut y.as_mut_slice()[..self.y.elems()], out),
            Items::new(&mut statistics, plane),
            PerThread::new(scratch.as_mut_slice(), self.workspace),
        );
        self.threads.divide(self.items(), divided, |items, (y, statistics, workspace)| {
            let own = y.chunks_exact_mut(out).zip(statistics.chunks_exact_mut(plane));
            for (item, (y, statistics)) in items.zip(own) {
                let inputs = parts(item, heads.op.heads, each).map(|at| &x[at..][..each]);
                for (number, statistics) in statistics.chunks_exact_mut(heads.sizes.positions).enumerate() {
                    let window = heads.window(item, number);
                    heads.set.run(Forward { window, inputs, statistics, y: &mut *y, workspace: &mut *workspace });
                }
            }
        });
        drop(scratch);
        self.statistics = statistics;
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let mut unused;
        let dx = match g.take_dx(0) {
            Some(dx) => dx,
            None if pass.frozen || pass.slots.is_empty() => return Ok(()),
            None => {
                unused = AlignedBuf::zeroed(self.x.elems(), "gradients of queries, keys and values")?;
                &mut unused
            }
        };
        let mut partial = std::mem::take(&mut self.partial);
        let (heads, [each, out], plane) = (&self.heads, self.heads.elems(), self.x.shape.plane());
        let (x, dy, mut scratch) = (g.x[0].as_slice(), g.dy.as_slice(), self.scratch.borrow());
        let (differences, area) = (self.windows.differences(), self.heads.sizes.positions);
        let (windows, statistics) = (self.windows.count(), &self.statistics);
        let dx = SharedSlice::new(&mut dx.as_mut_slice()[..self.x.elems()]);
        let divided =
            (PerThread::new(scratch.as_mut_slice(), self.workspace), Items::new(&mut partial, differences + 1));
        self.threads.divide(self.items(), divided, |items, (workspace, partial)| {
            let mut partial = partial.chunks_exact_mut(differences + 1);
            for item in items {
                let at = parts(item, heads.op.heads, each);
                let inputs = at.map(|at| &x[at..][..each]);
                // SAFETY: each head has its own three ranges in each sample, and only one thread processes a head.
                let mut gradients = at.map(|at| unsafe { dx.part(at..at + each) });
                let (dy, partial) = (&dy[item * out..][..out], partial.next());
                let (workspace, dbias) = workspace.split_at_mut(heads.sizes.workspace(true));
                dbias.fill(0.0);
                let mut dscale = 0.0;
                for number in 0..windows {
                    let statistics = &statistics[item * plane + number * area..][..area];
                    let (window, gradients) =
                        (heads.window(item, number), gradients.each_mut().map(|part| &mut **part));
                    dscale += heads.set.run(Backward {
                        window,
                        inputs,
                        statistics,
                        dy,
                        gradients,
                        dbias: &mut *dbias,
                        workspace: &mut *workspace,
                    });
                }
                if let Some(partial) = partial {
                    partial.fill(0.0);
                    heads.terms.iter().for_each(|terms| terms.add_differences(dbias, partial, &heads.sizes));
                    partial[differences] = dscale;
                }
            }
        });
        drop(scratch);
        self.partial = partial;
        if !pass.frozen && !pass.slots.is_empty() {
            self.store_gradients(pass, g.dparams);
        }
        Ok(())
    }
}

/// Returns the input indices where the queries, keys and values of a head begin. Each has `elems` elements. `item`
/// counts the heads over all samples.
fn parts(item: usize, heads: usize, elems: usize) -> [usize; 3] {
    let (sample, head) = (item / heads, item % heads);
    [0, 1, 2].map(|part| ((3 * sample + part) * heads + head) * elems)
}
