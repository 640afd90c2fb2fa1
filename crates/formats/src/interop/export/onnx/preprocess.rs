//! Writes the last image transforms as nodes, so that the graph reads stored pixel values: `normalize`, and
//! `center_crop` if all images have the same size. ONNX of this opset cannot express earlier transforms, because its
//! Resize has no antialiasing.

use loaders::Dtype;
use net::Shape;

use super::STORED_INPUT;
use super::graph::{Attribute, Graph};
use crate::interop::export::format::Error;
use crate::interop::export::trained::{Trained, fill_nodata};

/// What [`add_before`] added.
pub(super) struct Before {
    /// Name of the transformed images.
    pub output: String,
    /// A sentence for the user that says which values the graph reads.
    pub note: String,
}

/// Adds an input for stored values, and the nodes from there to the network's own input.
///
/// # Errors
/// Fails if the last transform is not `normalize`, or if an earlier one changes the values of pixels.
pub(super) fn add_before(graph: &mut Graph, trained: &Trained) -> Result<Before, Error> {
    let ops = &trained.model.preprocess;
    let refuse = |why: String| trained.refusal(why);
    let Some((last, first)) = ops.split_last() else {
        return Err(refuse("--preprocess: the model has no transforms. Leave --preprocess out".into()));
    };
    let numbers = numbers(last, "normalize").filter(|n| !n.is_empty() && n.len().is_multiple_of(2));
    let numbers = numbers.ok_or_else(|| {
        refuse(format!("--preprocess: the last transform is {last}, expected normalize. Leave --preprocess out"))
    })?;
    let net = trained.network.net.input;
    let crop = Crop::of(trained, first);
    let rest = if crop.is_some() { &first[..first.len() - 1] } else { first };
    let from = crop.map_or(net, |crop| crop.from);
    let dtype = trained.model.bands.dtype;
    if let Some(op) = rest.iter().find(|op| VALUES.iter().any(|name| op.starts_with(name))) {
        return Err(refuse(format!(
            "--preprocess: {op} changes values before the last normalize, and only this normalize and center_crop become nodes. Leave \
             --preprocess out"
        )));
    }
    let image = graph.stored(STORED_INPUT, dtype, from);
    let cast = graph.cast(&image, "image.float");
    let mut planes = graph.node("Transpose", &[&cast], "image.planes", &[("perm", Attribute::Ints(&[0, 3, 1, 2]))]);
    if let Some(crop) = crop {
        planes = crop.add(graph, net, &planes);
    }
    let output = normalize(graph, &planes, net.c, (&numbers, dtype));
    let Shape { c, h, w } = from;
    let before = if rest.is_empty() { String::new() } else { format!(" after {}", rest.join(", ")) };
    let stored = if dtype == Dtype::U8 { "pixels from 0 to 255" } else { "stored values" };
    let fill = fill_nodata(&trained.model).map_or_else(String::new, |fill| format!(". {fill}"));
    Ok(Before { output, note: format!("input \"{STORED_INPUT}\": {dtype} (N, {h}, {w}, {c}), {stored}{before}{fill}") })
}

/// Transforms of the loader after which pixels no longer have stored values. ONNX graphs cannot contain them, except for
/// one `normalize` at the end.
const VALUES: [&str; 5] = ["clip_percentile", "log1p", "normalize", "scale(", "standardize"];

/// Computes `(x / 255 - mean) / std` per channel for bytes, as a product and a sum. For other values, computes
/// `(x - mean) / std` in the same order as the loader. If the mean is much larger than the std, a product and a sum would
/// lose digits.
fn normalize(graph: &mut Graph, planes: &str, channels: usize, (numbers, dtype): (&[f64], Dtype)) -> String {
    let (mean, std) = numbers.split_at(numbers.len() / 2);
    let mut constant = |name: &str, number: fn(f64, f64) -> f64| {
        let of = |c: usize| number(mean[c % mean.len()], std[c % std.len()]) as f32;
        graph.floats(name, &[channels, 1, 1], &(0..channels).map(of).collect::<Vec<f32>>())
    };
    if dtype == Dtype::U8 {
        let factors = constant("normalize.factor", |_, std| 1.0 / (255.0 * std));
        let sums = constant("normalize.sum", |mean, std| -mean / std);
        let scaled = graph.node("Mul", &[planes, &factors], "normalize.scaled", &[]);
        return graph.node("Add", &[&scaled, &sums], "input", &[]);
    }
    let means = constant("normalize.mean", |mean, _| mean);
    let stds = constant("normalize.std", |_, std| std);
    let centred = graph.node("Sub", &[planes, &means], "normalize.centred", &[]);
    graph.node("Div", &[&centred, &stds], "input", &[])
}

/// Returns the arguments of a transform if its name is `name`.
fn numbers(op: &str, name: &str) -> Option<Vec<f64>> {
    let list = op.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
    list.split(',').map(|number| number.trim().parse().ok()).collect()
}

/// A center crop of images that all have the same size.
#[derive(Clone, Copy)]
struct Crop {
    from: Shape,
    top: usize,
    left: usize,
}

impl Crop {
    /// Returns the crop if it is the only transform in the list, and all images have the same size, which is not
    /// smaller than the network's input.
    fn of(trained: &Trained, ops: &[String]) -> Option<Self> {
        let [op] = ops else { return None };
        let [c, h, w] = trained.model.image;
        let net = trained.network.net.input;
        let fits = numbers(op, "center_crop").is_some() && c == net.c && h >= net.h && w >= net.w;
        fits.then(|| Self { from: Shape::image(c, h, w), top: middle(h - net.h), left: middle(w - net.w) })
    }

    fn add(self, graph: &mut Graph, net: Shape, planes: &str) -> String {
        let (top, left) = (self.top as i64, self.left as i64);
        let starts = graph.ints("crop.starts", &[top, left]);
        let ends = graph.ints("crop.ends", &[top + net.h as i64, left + net.w as i64]);
        let axes = graph.ints("crop.axes", &[2, 3]);
        graph.node("Slice", &[planes, &starts, &ends, &axes], "crop", &[])
    }
}

/// Returns the number of pixels before a center crop. Rounds halves to even, as `center_crop` does.
fn middle(margin: usize) -> usize {
    (margin as f64 / 2.0).round_ties_even() as usize
}

#[cfg(test)]
mod tests {
    use loaders::Bands;
    use net::{Linear, NetSpec, Pool};

    use super::*;
    use crate::checkpoint::ModelFile;
    use crate::interop::export::format::Number;

    /// A product and a sum would have the constants 0.02 and -2026.5, and f32 has about seven digits.
    #[test]
    fn only_bytes_are_normalised_by_a_product_and_a_sum() {
        let has = |dtype: Dtype, part: &[u8]| {
            let mut graph = Graph::new(Number::F32);
            normalize(&mut graph, "planes", 1, (&[101_325.0, 50.0], dtype));
            graph.finish("graph").bytes().windows(part.len()).any(|own| own == part)
        };
        for dtype in [Dtype::U16, Dtype::F32] {
            assert!(has(dtype, b"Sub") && has(dtype, b"Div") && !has(dtype, b"Mul"), "{dtype}");
            assert!([101_325f32, 50.0].iter().all(|number| has(dtype, &number.to_le_bytes())), "{dtype}");
        }
        assert!(has(Dtype::U8, b"Mul") && has(Dtype::U8, b"Add") && !has(Dtype::U8, b"Sub"));
    }

    #[test]
    fn transforms_that_change_values_before_the_last_normalize_are_refused() {
        let added = |first: &str| {
            let mut net = NetSpec::new("x", Shape::image(3, 8, 8));
            let mean = net.add("mean", Pool::global(), net.image());
            net.add("fc", Linear::new(3), mean);
            let preprocess = vec![first.to_string(), "normalize(0.5, 0.25)".to_string()];
            let bands = Bands { nodata: Some(-9999.0), ..Bands::default() };
            let trained = Trained::new(net, ModelFile { preprocess, bands, ..ModelFile::sample() }).unwrap();
            add_before(&mut Graph::new(Number::F32), &trained).map(|before| before.note)
        };
        let note = added("resize(8x8)").unwrap();
        assert!(note.contains("after resize(8x8)") && note.contains("replace -9999 by the mean"), "{note}");
        for first in ["standardize", "normalize(0.2, 0.1)", "log1p"] {
            let error = added(first).unwrap_err().to_string();
            assert!(error.contains(&format!("{first} changes values")), "{error}");
        }
    }
}
