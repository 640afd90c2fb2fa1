//! Conversion between the names and layouts of tensors in PyTorch, which trireme uses in memory, and in Keras, which
//! model.h5 uses.
//!
//! | layer | PyTorch | Keras |
//! |---|---|---|
//! | convolution | `weight` (out, in/groups, kh, kw), `bias` | `kernel` (kh, kw, in/groups, out), `bias` |
//! | linear | `weight` (out, in), `bias` | `kernel` (in, out), `bias` |
//! | batch norm | `weight`, `bias`, `running_mean`, `running_var` | `gamma`, `beta`, `moving_mean`, `moving_variance` |
//! | layer norm, group norm | `weight`, `bias` | `gamma`, `beta` |
//! | layer scale | `layer_scale` | `gamma` |
//! | class token | `class_token` | `class_token` |
//! | position embedding | `pos_embedding` (positions, channels) | `embeddings` |
//!
//! The inputs of a linear layer after a flatten are ordered (C, H, W) in PyTorch and (H, W, C) in Keras.

use base::text::plural;
use net::{KerasOrder, Op, Stored, StoredTensor};

/// Converts PyTorch's module path to a layer name for Keras. Dots are replaced, because Keras 3 with the PyTorch
/// backend does not allow them.
pub fn layer_name(path: &str) -> String {
    path.replace('.', "_")
}

/// Returns the last part of a weight's path in a file: `kernel` for `conv1/conv1/kernel:0`.
pub(super) fn field_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path).trim_end_matches(":0")
}

/// A tensor: name, shape, and values in C order.
pub type Tensor = (String, Vec<usize>, Vec<f32>);

/// Converts a layer's tensors from PyTorch's names and layouts to Keras's.
///
/// # Errors
///
/// Returns a text with expected and actual value if a name is unknown or in the wrong order, or if a shape does not fit
/// the layer.
pub fn to_keras(kind: LayerKind, tensors: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let mut last = None;
    let mut converted = Vec::with_capacity(tensors.len());
    for (name, shape, values) in tensors {
        let (at, stored) = kind.stored.by_torch(name).ok_or_else(|| unknown(name, kind, |tensor| tensor.torch))?;
        if last.is_some_and(|last| last >= at) {
            return Err(format!(
                "tensor {name} is in the wrong place or occurs twice; the order must be that of PyTorch's state_dict"
            ));
        }
        last = Some(at);
        converted.push(reordered(stored.keras, stored.order, kind, (name, shape, values), TO_KERAS)?);
    }
    Ok(converted)
}

/// Reverses [`to_keras`].
///
/// # Errors
///
/// Returns errors like [`to_keras`], except for the order of the names.
pub fn from_keras(kind: LayerKind, tensors: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let mut converted = Vec::with_capacity(tensors.len());
    for (name, shape, values) in tensors {
        let stored = kind.stored.by_keras(name).ok_or_else(|| unknown(name, kind, |tensor| tensor.keras))?;
        converted.push(reordered(stored.torch, stored.order, kind, (name, shape, values), TO_TORCH)?);
    }
    Ok(converted)
}

fn unknown(name: &str, kind: LayerKind, side: fn(&StoredTensor) -> &'static str) -> String {
    let known: Vec<_> = kind.stored.tensors.iter().map(side).collect();
    format!("tensor {name} is unknown, expected one of {}", known.join(", "))
}

fn check_length(name: &str, shape: &[usize], values: &[f32]) -> Result<(), String> {
    let expected = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    match expected {
        // Empty tensors are rejected: next to a size of 0, other sizes may be arbitrarily large, and `permute` would
        // loop over them.
        Some(expected) if expected == values.len() && expected > 0 => Ok(()),
        Some(0) => Err(format!("tensor {name} of shape {shape:?} is empty")),
        Some(expected) => {
            Err(format!("tensor {name} of shape {shape:?} has {} values, expected {expected}", values.len()))
        }
        None => Err(format!("tensor {name} has the shape {shape:?}, which is too large")),
    }
}

/// The transposition of filters from (out, in, height, width) to (height, width, in, out), and back.
const TO_KERAS: [usize; 4] = [2, 3, 1, 0];
const TO_TORCH: [usize; 4] = [3, 2, 0, 1];

/// Returns a tensor under the name `to`, in the order that `axes` selects: [`TO_KERAS`] or [`TO_TORCH`].
fn reordered(
    to: &str,
    order: KerasOrder,
    kind: LayerKind,
    (name, shape, values): (&str, &[usize], &[f32]),
    axes: [usize; 4],
) -> Result<Tensor, String> {
    check_length(name, shape, values)?;
    let same_order = |dimensions: usize| match shape.len() == dimensions {
        true => Ok((shape.to_vec(), values.to_vec())),
        false => {
            let expected = plural(dimensions, "dimension");
            Err(format!("tensor {name} should have {expected}, got shape {shape:?}"))
        }
    };
    let (shape, values) = match (order, shape) {
        (KerasOrder::Filters, &[a, b, c, d]) => {
            (axes.map(|axis| shape[axis]).to_vec(), permute(values, [a, b, c, d], axes))
        }
        (KerasOrder::Filters, _) => {
            return Err(format!("tensor {name} of a convolution should have four dimensions, got shape {shape:?}"));
        }
        // the inputs of a linear layer are the channels, rows and columns of filters that cover the whole image
        (KerasOrder::Matrix, &[rows, columns]) if axes == TO_KERAS => {
            let [c, h, w] = inputs(name, columns, kind.flatten)?;
            (vec![columns, rows], permute(values, [rows, c, h, w], axes))
        }
        (KerasOrder::Matrix, &[rows, columns]) => {
            let [c, h, w] = inputs(name, rows, kind.flatten)?;
            (vec![columns, rows], permute(values, [h, w, c, columns], axes))
        }
        (KerasOrder::Matrix, _) => {
            return Err(format!("tensor {name} of a linear layer should have two dimensions, got shape {shape:?}"));
        }
        (KerasOrder::Vector, _) => same_order(1)?,
        (KerasOrder::Rows, _) => same_order(2)?,
    };
    Ok((to.to_string(), shape, values))
}

/// Returns the inputs of a linear layer as (C, H, W). Without a flatten before the layer, all inputs are channels.
fn inputs(name: &str, inputs: usize, flatten: Option<[usize; 3]>) -> Result<[usize; 3], String> {
    let chw = flatten.unwrap_or([inputs, 1, 1]);
    let product = chw.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    if product == Some(inputs) {
        return Ok(chw);
    }
    let [c, h, w] = chw;
    Err(format!("tensor {name} has {inputs} inputs, but the layer before it flattens {c} x {h} x {w} values"))
}

/// Transposes `values`: dimension `d` of the result is dimension `axes[d]` of `values`.
fn permute(values: &[f32], shape: [usize; 4], axes: [usize; 4]) -> Vec<f32> {
    let mut strides = [1; 4];
    for d in (0..3).rev() {
        strides[d] = strides[d + 1] * shape[d + 1];
    }
    let [n0, n1, n2, n3] = axes.map(|axis| shape[axis]);
    let [s0, s1, s2, s3] = axes.map(|axis| strides[axis]);
    let mut permuted = Vec::with_capacity(values.len());
    for i0 in 0..n0 {
        for i1 in 0..n1 {
            for i2 in 0..n2 {
                let start = i0 * s0 + i1 * s1 + i2 * s2;
                permuted.extend((0..n3).map(|i3| values[start + i3 * s3]));
            }
        }
    }
    permuted
}

/// The properties of a layer that determine how its tensors are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerKind {
    /// Names and layouts of the tensors.
    pub stored: &'static Stored,
    /// Channels, height and width before the flatten, if a flatten directly precedes the layer.
    pub flatten: Option<[usize; 3]>,
}

impl LayerKind {
    /// Creates the kind of a layer that does not follow a flatten.
    pub fn new(stored: &'static Stored) -> Self {
        Self { stored, flatten: None }
    }

    /// Returns the kind with this name.
    ///
    /// # Errors
    ///
    /// Returns a text with all known kinds.
    pub fn named(kind: &str) -> Result<Self, String> {
        let known = || Op::all_stored().map(|stored| stored.kind).collect::<Vec<_>>().join(", ");
        let found = Op::all_stored().find(|stored| stored.kind == kind);
        found.map(Self::new).ok_or_else(|| format!("kind must be one of {}, got {kind:?}", known()))
    }

    /// Formats the name of the kind. If the layer follows a flatten, appends the image's channels, height and width,
    /// such as `linear 16 5 5`.
    pub(super) fn to_text(self) -> String {
        match self.flatten {
            Some([c, h, w]) => format!("{} {c} {h} {w}", self.stored.kind),
            None => self.stored.kind.into(),
        }
    }

    /// Reverses [`LayerKind::to_text`].
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, sizes) = text.split_once(' ').map_or((text, None), |(kind, sizes)| (kind, Some(sizes)));
        let kind = Self::named(kind).ok()?;
        let Some(sizes) = sizes else { return Some(kind) };
        let sizes: Vec<usize> = sizes.split(' ').map(|size| size.parse().ok()).collect::<Option<_>>()?;
        let flatten = Some(sizes.try_into().ok()?).filter(|_| kind.stored.depends_on_flatten())?;
        Some(Self { flatten: Some(flatten), ..kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, flatten: Option<[usize; 3]>) -> LayerKind {
        LayerKind { flatten, ..LayerKind::named(name).unwrap() }
    }

    fn tensor(name: &str, shape: &[usize]) -> Tensor {
        let length: usize = shape.iter().product();
        (name.into(), shape.to_vec(), (0..length).map(|i| i as f32).collect())
    }

    fn there_and_back(kind: LayerKind, tensors: &[Tensor]) -> Vec<Tensor> {
        let keras = to_keras(kind, tensors).unwrap();
        assert_eq!(from_keras(kind, &keras).unwrap(), tensors);
        keras
    }

    #[test]
    fn convolutions_go_from_oihw_to_hwio() {
        let (o, i, h, w) = (2, 3, 4, 5);
        let torch = [tensor("weight", &[o, i, h, w]), tensor("bias", &[o])];
        let keras = there_and_back(kind("conv", None), &torch);
        assert_eq!((keras[0].0.as_str(), &keras[0].1), ("kernel", &vec![h, w, i, o]));
        for (at, &value) in keras[0].2.iter().enumerate() {
            let (b, a, y, x) = (at % o, at / o % i, at / (o * i * w), at / (o * i) % w);
            assert_eq!(value, torch[0].2[((b * i + a) * h + y) * w + x]);
        }
        assert_eq!(keras[1], torch[1]);
    }

    #[test]
    fn linear_layers_are_transposed() {
        let keras = there_and_back(kind("linear", None), &[tensor("weight", &[2, 3])]);
        assert_eq!(keras, [("kernel".to_string(), vec![3, 2], vec![0., 3., 1., 4., 2., 5.])]);
    }

    #[test]
    fn inputs_after_a_flatten_go_from_chw_to_hwc() {
        let (o, c, h, w) = (2, 3, 4, 5);
        let torch = [tensor("weight", &[o, c * h * w])];
        let keras = there_and_back(kind("linear", Some([c, h, w])), &torch);
        assert_eq!(keras[0].1, [h * w * c, o]);
        for (at, &value) in keras[0].2.iter().enumerate() {
            let (b, hwc) = (at % o, at / o);
            let (a, y, x) = (hwc % c, hwc / (c * w), hwc / c % w);
            assert_eq!(value, torch[0].2[b * c * h * w + (a * h + y) * w + x]);
        }
    }

    #[test]
    fn norm_tensors_are_only_renamed() {
        let torch = ["weight", "bias", "running_mean", "running_var"].map(|name| tensor(name, &[3]));
        let keras = there_and_back(kind("norm", None), &torch);
        let names: Vec<_> = keras.iter().map(|t| t.0.as_str()).collect();
        assert_eq!(names, ["gamma", "beta", "moving_mean", "moving_variance"]);
        // A batch norm without scale and shift has only running statistics.
        there_and_back(kind("norm", None), &torch[2..]);
    }

    #[test]
    fn tensors_that_do_not_fit_are_refused_with_expected_and_actual() {
        let linear = kind("linear", Some([3, 2, 2]));
        let refused = |kind, tensors: &[Tensor], parts: &[&str]| {
            let text = to_keras(kind, tensors).unwrap_err();
            parts.iter().for_each(|part| assert!(text.contains(part), "expected {part:?} in: {text}"));
        };
        refused(linear, &[tensor("weight", &[2, 13])], &["tensor weight", "13 inputs", "3 x 2 x 2"]);
        refused(kind("conv", None), &[tensor("weight", &[2, 3])], &["tensor weight", "[2, 3]"]);
        refused(kind("conv", None), &[tensor("gamma", &[2])], &["tensor gamma", "weight, bias"]);
        let swapped = [tensor("bias", &[2]), tensor("weight", &[2])];
        refused(kind("norm", None), &swapped, &["tensor weight", "order"]);
        let short = ("bias".to_string(), vec![3], vec![0.0; 2]);
        refused(kind("norm", None), &[short], &["tensor bias", "[3]", "2 values"]);
        let overflow = ("bias".to_string(), vec![usize::MAX, 2], vec![]);
        assert!(from_keras(kind("linear", None), &[overflow]).is_err());
        let endless = ("kernel".to_string(), vec![usize::MAX, 0], vec![]);
        assert!(from_keras(kind("linear", None), &[endless]).unwrap_err().contains("is empty"));
    }
}
