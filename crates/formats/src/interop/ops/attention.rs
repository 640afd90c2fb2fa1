//! Multi-head self-attention, over the whole plane or in windows.

use net::{Attention, LEAST_NORM, MASK, MOST_SCALE, PositionBias};

use super::Attribute::{Int, Ints};
use super::{Code, Layer, LayerWriter, Layers, NO_SEQUENCES, OpMapping, Values, parameter};
use crate::interop::onnx::attention::operator;
use crate::interop::onnx::build::Operator;

impl OpMapping for Attention {
    fn onnx_operators() -> &'static [Operator] {
        &[("Attention", 4, operator)]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        Ok(if is_plain(self) { plain(self, writer, x) } else { windowed(self, writer, x) })
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (Self { heads, window, shift, grid, crop, scale, cosine, position_bias }, shape) = (self, layer.x[0]);
        let channels = self.head_channels(shape.c);
        if is_plain(self) {
            let parts =
                format!("{}.view(-1, 3, {heads}, {channels}, {}).transpose(3, 4).unbind(1)", v[0], shape.plane());
            let scale = scale.map_or(String::new(), |scale| format!(", scale={scale:?}"));
            let value = format!("F.scaled_dot_product_attention(*{parts}{scale}).transpose(2, 3)");
            return Ok(Code::plain(format!("{value}.reshape(-1, {}, {}, {})", heads * channels, shape.h, shape.w)));
        }
        let mut parameters = Vec::new();
        let mut own = |field: &'static str, shape: &str| -> Result<String, String> {
            parameters.push((field, format!("nn.Parameter(torch.zeros({shape}))")));
            parameter(layer, field)
        };
        let [rows, columns] = window.unwrap_or([shape.h, shape.w]);
        let mut value = format!("windowed_attention({}, {heads}, ({rows}, {columns})", v[0]);
        if *shift != [0; 2] {
            value += &format!(", shift=({}, {})", shift[0], shift[1]);
        }
        if *grid {
            value += ", grid=True";
        }
        if *crop != [0; 2] {
            value += &format!(", crop=({}, {})", crop[0], crop[1]);
        }
        if let Some(scale) = scale {
            value += &format!(", scale={scale:?}");
        }
        match position_bias {
            Some(PositionBias::Table) => {
                let differences = self.windows(shape).differences();
                let table = own("relative_position_bias_table", &format!("{differences}, {heads}"))?;
                value += &format!(", table={table}");
            }
            Some(PositionBias::Continuous(hidden)) => {
                let [w1, b1, w2] = [
                    own("cpb_mlp.0.weight", &format!("{hidden}, 2"))?,
                    own("cpb_mlp.0.bias", &hidden.to_string())?,
                    own("cpb_mlp.2.weight", &format!("{heads}, {hidden}"))?,
                ];
                value += &format!(", table=continuous_bias(({rows}, {columns}), {w1}, {b1}, {w2})");
            }
            None => {}
        }
        if *cosine {
            value += &format!(", logit_scale={}", own("logit_scale", &format!("{heads}, 1, 1"))?);
        }
        Ok(Code { parameters, ..Code::plain(value + ")") })
    }

    fn torch_shape(&self, tensor: &Values<'_>) -> Vec<usize> {
        if tensor.field == "logit_scale" { vec![self.heads, 1, 1] } else { tensor.shape.to_vec() }
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err(NO_SEQUENCES.into())
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }
}

/// Returns true if attention is over the whole plane, without a bias and without cosines.
fn is_plain(op: &Attention) -> bool {
    *op == Attention { scale: op.scale, ..Attention::new(op.heads) }
}

/// Computes in the order (images, heads, channels, positions), so that only the softmax needs a transposition.
fn plain(op: &Attention, writer: &mut LayerWriter<'_>, x: &[String]) -> String {
    let shape = writer.layer.x[0];
    let [heads, d, plane] = [op.heads, op.head_channels(shape.c), shape.plane()].map(|size| size as i64);
    // size 0 means the batch size
    let parts = writer.ints("parts", &[0, 3 * heads, d, plane]);
    let parts = writer.node("Reshape", &[&x[0], &parts], "heads", &[]);
    let [queries, keys, values] = thirds(writer, &parts, heads);
    let turned = [("perm", Ints(&[0, 1, 3, 2]))];
    let scale = writer.floats("scale", &[], &[op.scale(shape.c) as f32]);
    let queries = writer.node("Mul", &[queries, scale], "scaled", &[]);
    let queries = writer.node("Transpose", &[queries], "turned", &turned);
    let products = writer.node("MatMul", &[queries, keys], "products", &[]);
    let weights = writer.node("Softmax", &[products], "softmax", &[("axis", Int(-1))]);
    let weights = writer.node("Transpose", &[weights], "weights", &turned);
    let sums = writer.node("MatMul", &[values, weights], "sums", &[]);
    let whole = writer.ints("whole", &[0, heads * d, shape.h as i64, shape.w as i64]);
    writer.output("Reshape", &[sums, whole], &[])
}

/// Splits a tensor into queries, keys and values along axis 1.
fn thirds(writer: &mut LayerWriter<'_>, parts: &str, heads: i64) -> [String; 3] {
    let axis = writer.ints("axis", &[1]);
    [("queries", 0), ("keys", 1), ("values", 2)].map(|(part, number)| {
        let ends = [("starts", number * heads), ("ends", (number + 1) * heads)];
        let [starts, ends] = ends.map(|(what, value)| writer.ints(&format!("{part}.{what}"), &[value]));
        writer.node("Slice", &[parts, starts.as_str(), ends.as_str(), axis.as_str()], part, &[])
    })
}

/// Gathers the positions of each window, computes in the order (images, heads, windows, cells, channels), and gathers
/// the positions of the output.
fn windowed(op: &Attention, writer: &mut LayerWriter<'_>, x: &[String]) -> String {
    let (shape, y) = (writer.layer.x[0], writer.layer.y);
    let windows = op.windows(shape);
    let cells: Vec<(usize, usize)> =
        (0..windows.count()).flat_map(|window| (0..windows.area()).map(move |cell| (window, cell))).collect();
    let [heads, d, count, area] =
        [op.heads, op.head_channels(shape.c), windows.count(), windows.area()].map(|size| size as i64);
    let channels_last = [("perm", Ints(&[0, 1, 3, 4, 2]))];
    let order: Vec<i64> = cells.iter().map(|(window, cell)| windows.input(*window, *cell) as i64).collect();
    let order = writer.ints("order", &order);
    // size 0 means the batch size
    let rows = writer.ints("rows", &[0, 3 * heads * d, shape.plane() as i64]);
    let rows = writer.node("Reshape", &[&x[0], &rows], "plane", &[]);
    let rows = writer.node("Gather", &[rows, order], "gathered", &[("axis", Int(2))]);
    let parts = writer.ints("parts", &[0, 3 * heads, d, count, area]);
    let parts = writer.node("Reshape", &[rows, parts], "heads", &[]);
    let [queries, keys, values] = thirds(writer, &parts, heads);
    let [queries, keys] = [(queries, "query"), (keys, "key")].map(|(vectors, what)| match op.cosine {
        true => divided_by_norms(writer, vectors, what),
        false => vectors,
    });
    let queries = writer.node("Transpose", &[queries], "turned_queries", &channels_last);
    let keys = writer.node("Transpose", &[keys], "turned_keys", &[("perm", Ints(&[0, 1, 3, 2, 4]))]);
    let values = writer.node("Transpose", &[values], "turned_values", &channels_last);
    let products = writer.node("MatMul", &[queries, keys], "products", &[]);
    let scale = match op.cosine {
        true => {
            let most = MOST_SCALE.ln();
            let scales: Vec<f32> =
                writer.values("logit_scale").iter().map(|scale| f64::from(*scale).min(most).exp() as f32).collect();
            writer.weight("logit_scale", &[op.heads, 1, 1, 1], &scales)
        }
        false => writer.floats("scale", &[], &[op.scale(shape.c) as f32]),
    };
    let mut logits = writer.node("Mul", &[products, scale], "scaled", &[]);
    if let Some(bias) = bias(op, writer) {
        logits = writer.node("Add", &[logits, bias], "biased", &[]);
    }
    let masked = |window, query, key| windows.part(window, query) != windows.part(window, key);
    if cells.iter().any(|(window, cell)| windows.part(*window, *cell) > 0) {
        let row = |(window, query): &(usize, usize)| {
            let (window, query) = (*window, *query);
            (0..windows.area()).map(move |key| if masked(window, query, key) { MASK } else { 0.0 })
        };
        let mask: Vec<f32> = cells.iter().flat_map(row).collect();
        let mask = writer.floats("mask", &[windows.count(), windows.area(), windows.area()], &mask);
        logits = writer.node("Add", &[logits, mask], "masked", &[]);
    }
    let weights = writer.node("Softmax", &[logits], "softmax", &[("axis", Int(-1))]);
    let sums = writer.node("MatMul", &[weights, values], "sums", &[]);
    let sums = writer.node("Transpose", &[sums], "turned_sums", &[("perm", Ints(&[0, 1, 4, 2, 3]))]);
    let rows = writer.ints("sum_rows", &[0, heads * d, count * area]);
    let sums = writer.node("Reshape", &[sums, rows], "sum_plane", &[]);
    let mut back = vec![0; y.plane()];
    for (at, (window, cell)) in cells.iter().enumerate() {
        if let Some(position) = windows.output(*window, *cell) {
            back[position] = at as i64;
        }
    }
    let back = writer.ints("back", &back);
    let sums = writer.node("Gather", &[sums, back], "scattered", &[("axis", Int(2))]);
    let whole = writer.ints("whole", &[0, heads * d, y.h as i64, y.w as i64]);
    writer.output("Reshape", &[sums, whole], &[])
}

/// Divides vectors by their norms. Their channels are axis 2.
fn divided_by_norms(writer: &mut LayerWriter<'_>, vectors: String, what: &str) -> String {
    let norms = [("axes", Ints(&[2])), ("keepdims", Int(1))];
    let norms = writer.node("ReduceL2", &[&vectors], &format!("{what}_norms"), &norms);
    let least = writer.floats(&format!("{what}_least"), &[], &[LEAST_NORM as f32]);
    let norms = writer.node("Max", &[norms, least], &format!("{what}_limited"), &[]);
    writer.node("Div", &[vectors, norms], &format!("{what}_directions"), &[])
}

/// Adds the position bias in the shape (heads, 1, cells, cells). Returns `None` if the layer has no position bias.
fn bias(op: &Attention, writer: &mut LayerWriter<'_>) -> Option<String> {
    let windows = op.windows(writer.layer.x[0]);
    let (area, heads, differences) = (windows.area(), op.heads, windows.differences());
    let table = match op.position_bias? {
        PositionBias::Table => {
            let values = writer.values("relative_position_bias_table");
            writer.weight("relative_position_bias_table", &[differences, heads], &values)
        }
        PositionBias::Continuous(hidden) => {
            let coordinates: Vec<f32> = windows.coordinates().into_iter().flatten().collect();
            let coordinates = writer.floats("coordinates", &[differences, 2], &coordinates);
            let w1 = turned_weight(writer, "cpb_mlp.0.weight", [hidden, 2]);
            let b1 = writer.values("cpb_mlp.0.bias");
            let b1 = writer.weight("cpb_mlp.0.bias", &[hidden], &b1);
            let w2 = turned_weight(writer, "cpb_mlp.2.weight", [heads, hidden]);
            let units = writer.node("MatMul", &[coordinates, w1], "cpb_mlp.0.product", &[]);
            let units = writer.node("Add", &[units, b1], "cpb_mlp.0", &[]);
            let units = writer.node("Relu", &[units], "cpb_mlp.1", &[]);
            let table = writer.node("MatMul", &[units, w2], "cpb_mlp.2", &[]);
            let table = writer.node("Sigmoid", &[table], "cpb_sigmoid", &[]);
            let factor = writer.floats("cpb_factor", &[], &[16.0]);
            writer.node("Mul", &[table, factor], "cpb_table", &[])
        }
    };
    let pairs = (0..area).flat_map(|query| (0..area).map(move |key| (query, key)));
    let differences: Vec<i64> = pairs.map(|(query, key)| windows.difference(query, key) as i64).collect();
    let differences = writer.ints("differences", &differences);
    let bias = writer.node("Gather", &[table, differences], "bias_rows", &[("axis", Int(0))]);
    let bias = writer.node("Transpose", &[bias], "bias_turned", &[("perm", Ints(&[1, 0]))]);
    let whole = writer.ints("bias_shape", &[heads as i64, 1, area as i64, area as i64]);
    Some(writer.node("Reshape", &[bias, whole], "bias", &[]))
}

/// Adds a weight of the shape (outputs, inputs) as (inputs, outputs).
fn turned_weight(writer: &mut LayerWriter<'_>, field: &str, [outputs, inputs]: [usize; 2]) -> String {
    let values = writer.values(field);
    let turned: Vec<f32> = (0..inputs).flat_map(|i| values.iter().skip(i).step_by(inputs)).copied().collect();
    writer.weight(field, &[inputs, outputs], &turned)
}
