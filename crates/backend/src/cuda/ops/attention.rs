//! Multi-head self-attention, over the whole plane or in windows.

use std::rc::Rc;

use net::{Attention, MOST_SCALE, PositionBias, Windows};

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice, plain};
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::{Format, channels_last};
use crate::cuda::shared::Shared;
use crate::{Arena, Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

/// Maximum number of channels per head (`HEAD` in attention.cu).
const MOST_CHANNELS: usize = 128;

/// Marks a cell that the output leaves out (`OUTSIDE` in attention.cu).
const OUTSIDE: u32 = u32::MAX;

/// Sizes of attention as a kernel argument, see attention.cu.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct AttentionSizes {
    images: u32,
    heads: u32,
    width: u32,
    plane: u32,
    out_plane: u32,
    area: u32,
    columns: u32,
    differences: u32,
}

plain! { AttentionSizes = "AttentionSizes" }

// `queries` is images * heads * positions. `x_elems` and `y_elems` are the sizes of x and y, `places` has three numbers
// per position.
kernels! {
    /// Computes 1 / the norm of each query and key.
    attention_norms: AttentionNorms over threads(2 * queries) given(x_elems) {
        x: [Activation; x_elems],
        norms: [f32; 2 * queries],
        sizes: [AttentionSizes; 1],
        queries: u64,
    }

    /// Computes the factors of cosines from the learned numbers.
    attention_scales: AttentionScales over threads(heads) {
        learned: [f32; heads],
        scales: [f32; heads],
        heads: u32,
        most: f32,
    }

    /// Computes y and each query's statistics.
    attention_forward: AttentionForward over threads(queries * 32) given(x_elems, y_elems, plane, heads, table) {
        x: [Activation; x_elems],
        y: [Activation; y_elems],
        statistics: [f32; 2 * queries],
        sizes: [AttentionSizes; 1],
        places: [u32; 3 * plane],
        scales: [f32; heads],
        bias: (null or [f32; table]),
        norms: (null or [f32; 2 * queries]),
        queries: u64,
    }

    /// Computes the gradients for the queries, and completes the statistics.
    attention_queries: AttentionQueries over threads(queries / together * 32) given(x_elems, y_elems, plane, heads, table, area) {
        x: [Activation; x_elems],
        y: [Activation; y_elems],
        dy: [Activation; y_elems],
        dx: (null or [Activation; x_elems]),
        statistics: [f32; 4 * queries],
        sizes: [AttentionSizes; 1],
        places: [u32; 3 * plane],
        scales: [f32; heads],
        bias: (null or [f32; table]),
        norms: (null or [f32; 2 * queries]),
        pairs: (null or [f32; heads * plane * area]),
        queries: u64,
        together: u32,
    }

    /// Computes the gradients for the keys and values.
    attention_keys: AttentionKeys over threads(queries * 32) given(x_elems, y_elems, plane, heads, table) {
        x: [Activation; x_elems],
        dy: [Activation; y_elems],
        dx: [Activation; x_elems],
        statistics: [f32; 3 * queries],
        sizes: [AttentionSizes; 1],
        places: [u32; 3 * plane],
        scales: [f32; heads],
        bias: (null or [f32; table]),
        norms: (null or [f32; 2 * queries]),
        queries: u64,
    }

    /// Sums the gradients of the bias over pairs with the same difference of positions.
    attention_differences: AttentionDifferences over threads(outputs * 32) given(pair_elems) {
        pairs: [f32; pair_elems],
        sizes: [AttentionSizes; 1],
        gradient: [f32; outputs],
        outputs: u32,
    }

    /// Sums the gradients of the learned numbers of the factors.
    attention_scale_gradients: AttentionScaleGradients over blocks(heads) {
        statistics: [f32; 4 * queries],
        learned: [f32; heads],
        sizes: [AttentionSizes; 1],
        gradient: [f32; heads],
        queries: u64,
        heads: u32,
        most: f32,
    }

    /// Computes the table of a continuous bias.
    continuous_bias: ContinuousBias over threads(differences * heads) {
        coordinates: [f32; 2 * differences],
        w1: [f32; 2 * hidden],
        b1: [f32; hidden],
        w2: [f32; heads * hidden],
        table: [f32; differences * heads],
        differences: u32,
        heads: u32,
        hidden: u32,
    }

    /// Computes the gradients of the parameters of a continuous bias.
    continuous_bias_gradients: ContinuousBiasGradients over threads(hidden) {
        coordinates: [f32; 2 * differences],
        w1: [f32; 2 * hidden],
        b1: [f32; hidden],
        w2: [f32; heads * hidden],
        table: [f32; differences * heads],
        dtable: [f32; differences * heads],
        dw1: [f32; 2 * hidden],
        db1: [f32; hidden],
        dw2: [f32; heads * hidden],
        differences: u32,
        heads: u32,
        hidden: u32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    op: Attention,
    x: TensorDesc,
    y: TensorDesc,
    windows: Windows,
    formats: Vec<Format>,
    sizes: CudaBuf,
    /// For each window and cell, the position in x, then the position in y, then the part of the window.
    places: CudaBuf,
    /// The factor of each head.
    scales: CudaBuf,
    /// Four values per query: the greatest logit, 1 / the sum of exponentials, the product of output and gradient, and
    /// the gradient with respect to the logarithm of its factor.
    statistics: CudaBuf,
    /// 1 / the norm of each query and key, if the products are cosines.
    norms: Option<CudaBuf>,
    /// Gradients of the bias for each head, window, query and key, in training with a bias.
    pairs: Option<CudaBuf>,
    continuous: Option<Continuous>,
}

/// Memory of a continuous bias.
struct Continuous {
    hidden: u32,
    coordinates: CudaBuf,
    table: CudaBuf,
    dtable: CudaBuf,
}

pub fn plan(gpu: &Cuda, op: &Attention, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, x, y, windows) = (&gpu.shared, r.x[0], channels_last(r.x[0].n, r.output()?), op.windows(r.x[0].shape));
    let (width, plane, area) = (op.head_channels(x.shape.c), x.shape.plane(), windows.area());
    if width > MOST_CHANNELS {
        let why =
            format!("a head has {width} channels; on a GPU at most {MOST_CHANNELS} are supported. Use more heads");
        return Err(Error::Unsupported { op: r.name.into(), why });
    }
    let queries = x.n * op.heads * plane;
    let cells = || (0..windows.count()).flat_map(|window| (0..area).map(move |cell| (window, cell)));
    let inputs = cells().map(|(window, cell)| windows.input(window, cell) as u32);
    let outputs = cells().map(|(window, cell)| windows.output(window, cell).map_or(OUTSIDE, |at| at as u32));
    let parts = cells().map(|(window, cell)| windows.part(window, cell) as u32);
    let places: Vec<u32> = inputs.chain(outputs).chain(parts).collect();
    let sizes = AttentionSizes {
        images: x.n as u32,
        heads: op.heads as u32,
        width: width as u32,
        plane: plane as u32,
        out_plane: y.shape.plane() as u32,
        area: area as u32,
        columns: windows.width() as u32,
        differences: windows.differences() as u32,
    };
    let table = windows.differences() * op.heads;
    let continuous = match op.position_bias {
        Some(PositionBias::Continuous(hidden)) => {
            let coordinates: Vec<f32> = windows.coordinates().into_iter().flatten().collect();
            let coordinates = shared.constant(&coordinates, r.name)?;
            let (hidden, [table, dtable]) =
                (hidden as u32, [shared.alloc(table, r.name)?, shared.alloc(table, r.name)?]);
            Some(Continuous { hidden, coordinates, table, dtable })
        }
        _ => None,
    };
    let formats = r.op.params(x.shape).iter().map(|param| Format::Plain(param.elems())).collect();
    let learns = r.train && op.position_bias.is_some();
    Ok(Box::new(Plan {
        shared: shared.clone(),
        op: *op,
        x,
        y,
        windows,
        formats,
        sizes: shared.constant(&[sizes], r.name)?,
        places: shared.constant(&places, r.name)?,
        scales: shared.constant(&vec![op.scale(x.shape.c) as f32; op.heads], r.name)?,
        statistics: shared.alloc(4 * queries, r.name)?,
        norms: op.cosine.then(|| shared.alloc(2 * queries, r.name)).transpose()?,
        pairs: learns.then(|| shared.alloc(op.heads * plane * area, r.name)).transpose()?,
        continuous,
    }))
}

impl Plan {
    /// Returns the number of queries in all heads and images.
    fn queries(&self) -> u64 {
        (self.x.n * self.op.heads * self.x.shape.plane()) as u64
    }

    /// Returns the number of elements in the table of the bias.
    fn table_elems(&self) -> usize {
        self.windows.differences() * self.op.heads
    }

    /// Returns the table of the bias.
    fn bias<'a>(&'a self, pass: &'a Pass<'_, Cuda>) -> Result<Option<Slice<'a, f32>>, Error> {
        match (self.op.position_bias, &self.continuous) {
            (Some(PositionBias::Table), _) => pass.params.at(pass.slots[0]).map(Some),
            (_, continuous) => Ok(continuous.as_ref().map(|continuous| continuous.table.slice())),
        }
    }

    /// Returns the learned numbers of the factors for cosines.
    fn learned<'a>(&self, arena: &'a Arena<Cuda>, pass: &Pass<'_, Cuda>) -> Result<Option<Slice<'a, f32>>, Error> {
        self.op.cosine.then(|| arena.at(pass.slots[self.op.leading_parameters() - 1])).transpose()
    }

    /// Computes the factors and the table of the bias.
    fn prepare(&self, pass: &Pass<'_, Cuda>, x: Slice<'_, Activation>) -> Result<(), Error> {
        let (shared, heads) = (&self.shared, self.op.heads as u32);
        if let (Some(learned), Some(norms)) = (self.learned(pass.params, pass)?, &self.norms) {
            let (scales, most) = (self.scales.slice(), MOST_SCALE.ln() as f32);
            shared.launch(&AttentionScales { learned, scales, heads, most })?;
            let (sizes, queries, x_elems) = (self.sizes.slice(), self.queries(), self.x.elems());
            shared.launch(&AttentionNorms { x, norms: norms.slice(), sizes, queries, x_elems })?;
        }
        if let Some(Continuous { hidden, coordinates, table, .. }) = &self.continuous {
            let [w1, b1, w2] = self.continuous_parameters(pass.params, pass)?;
            let (coordinates, table, differences) =
                (coordinates.slice(), table.slice(), self.windows.differences() as u32);
            shared.launch(&ContinuousBias { coordinates, w1, b1, w2, table, differences, heads, hidden: *hidden })?;
        }
        Ok(())
    }

    /// Returns the parameters of the continuous bias, or their gradients.
    fn continuous_parameters<'a>(
        &self,
        arena: &'a Arena<Cuda>,
        pass: &Pass<'_, Cuda>,
    ) -> Result<[Slice<'a, f32>; 3], Error> {
        let first = self.op.leading_parameters();
        Ok([arena.at(pass.slots[first])?, arena.at(pass.slots[first + 1])?, arena.at(pass.slots[first + 2])?])
    }

    /// Computes the gradients of the parameters. The gradients of the queries must be computed before.
    fn store_gradients(&self, pass: &Pass<'_, Cuda>, dparams: &Arena<Cuda>) -> Result<(), Error> {
        let (shared, heads, queries) = (&self.shared, self.op.heads as u32, self.queries());
        let sizes = self.sizes.slice();
        if let (Some(learned), Some(gradient)) = (self.learned(pass.params, pass)?, self.learned(dparams, pass)?) {
            let (statistics, most) = (self.statistics.slice(), MOST_SCALE.ln() as f32);
            shared.launch(&AttentionScaleGradients { statistics, learned, sizes, gradient, queries, heads, most })?;
        }
        let Some(pairs) = &self.pairs else { return Ok(()) };
        let (pairs, outputs) = (pairs.slice(), self.table_elems() as u32);
        let pair_elems = self.op.heads * self.x.shape.plane() * self.windows.area();
        let gradient = match &self.continuous {
            Some(continuous) => continuous.dtable.slice(),
            None => dparams.at(pass.slots[0])?,
        };
        shared.launch(&AttentionDifferences { pairs, sizes, gradient, outputs, pair_elems })?;
        let Some(Continuous { hidden, coordinates, table, dtable }) = &self.continuous else { return Ok(()) };
        let [w1, b1, w2] = self.continuous_parameters(pass.params, pass)?;
        let [dw1, db1, dw2] = self.continuous_parameters(dparams, pass)?;
        shared.launch(&ContinuousBiasGradients {
            coordinates: coordinates.slice(),
            w1,
            b1,
            w2,
            table: table.slice(),
            dtable: dtable.slice(),
            dw1,
            db1,
            dw2,
            differences: self.windows.differences() as u32,
            heads,
            hidden: *hidden,
        })
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        self.formats.clone()
    }

    fn state_bytes(&self) -> usize {
        let continuous = self.continuous.iter().flat_map(|c| [&c.coordinates, &c.table, &c.dtable]);
        let always = [&self.sizes, &self.places, &self.scales, &self.statistics];
        let all = always.into_iter().chain(&self.norms).chain(&self.pairs).chain(continuous);
        all.map(CudaBuf::bytes).sum()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps { inputs: 1, output: true }
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let [x, y] = [self.x.elems(), self.y.elems()];
        Some(self.shared.traffic(x + y, 3 * x + 3 * y))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        self.prepare(pass, x)?;
        shared.launch(&AttentionForward {
            x,
            y,
            statistics: self.statistics.slice(),
            sizes: self.sizes.slice(),
            places: self.places.slice(),
            scales: self.scales.slice(),
            bias: self.bias(pass)?,
            norms: self.norms.as_ref().map(CudaBuf::slice),
            queries: self.queries(),
            x_elems: self.x.elems(),
            y_elems: self.y.elems(),
            plane: self.x.shape.plane(),
            heads: self.op.heads,
            table: self.table_elems(),
        })
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, dx, learns) = (&self.shared, g.take_dx(0), !pass.frozen && !pass.slots.is_empty());
        if dx.is_none() && !learns {
            return Ok(());
        }
        let (x, y) = (shared.holds(g.x[0], self.x.elems())?, shared.holds(g.y, self.y.elems())?);
        let dy = shared.holds(g.dy, self.y.elems())?;
        let dx = dx.as_deref().map(|dx| shared.holds(dx, self.x.elems())).transpose()?;
        let pairs = self.pairs.as_ref().filter(|_| learns).map(CudaBuf::slice);
        let (statistics, sizes, places) = (self.statistics.slice(), self.sizes.slice(), self.places.slice());
        let (scales, bias, norms) = (self.scales.slice(), self.bias(pass)?, self.norms.as_ref().map(CudaBuf::slice));
        let (queries, plane, heads, table) = (self.queries(), self.x.shape.plane(), self.op.heads, self.table_elems());
        let [x_elems, y_elems] = [self.x.elems(), self.y.elems()];
        shared.launch(&AttentionQueries {
            x,
            y,
            dy,
            dx,
            statistics,
            sizes,
            places,
            scales,
            bias,
            norms,
            pairs,
            queries,
            together: if pairs.is_some() { self.x.n as u32 } else { 1 },
            x_elems,
            y_elems,
            plane,
            heads,
            table,
            area: self.windows.area(),
        })?;
        if let Some(dx) = dx {
            shared.launch(&AttentionKeys {
                x,
                dy,
                dx,
                statistics: statistics.range(0, 3 * queries as usize)?,
                sizes,
                places,
                scales,
                bias,
                norms,
                queries,
                x_elems,
                y_elems,
                plane,
                heads,
                table,
            })?;
        }
        if learns { self.store_gradients(pass, g.dparams) } else { Ok(()) }
    }
}
