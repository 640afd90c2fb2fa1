//! Normalisations. Batch norm comes in the form for inference, and is trained again: with statistics of each batch, and running ones that
//! start from the file's.

use std::rc::Rc;

use net::{GroupNorm, LayerNorm, Lrn, Norm};

use crate::interop::onnx::build::{Build, Groups, Layout, Operator, Value, View};
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::tensor::Constant;

pub(super) const OPERATORS: &[Operator] = &[
    ("BatchNormalization", 5, batch),
    ("GroupNormalization", 3, group),
    ("InstanceNormalization", 3, instance),
    ("LayerNormalization", 3, layer),
    ("LRN", 1, local),
];

/// A vector of the file.
fn vector(constant: &Constant) -> (Vec<usize>, Vec<f32>) {
    let values = constant.floats();
    (vec![values.len()], values)
}

/// A number that is added to a variance.
fn eps(node: &Node<'_>) -> Result<f32, String> {
    let eps = node.float("epsilon", 1e-5);
    if eps > 0.0 && eps.is_finite() {
        Ok(eps)
    } else {
        Err(format!("its epsilon must be > 0, got {eps}; export it with eps=1e-5"))
    }
}

fn batch<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["epsilon", "momentum", "spatial", "training_mode"])?;
    if node.int("training_mode", 0) != 0 {
        return Err("it was exported in training mode (training_mode=1), where it normalises by each batch. Export model.eval() with \
                    training=torch.onnx.TrainingMode.PRESERVE and do_constant_folding=False: that keeps the layer and its running \
                    statistics"
            .into());
    }
    if node.int("spatial", 1) != 1 {
        return Err(
            "it has statistics for each element (spatial=0); only statistics for each channel are supported".into()
        );
    }
    let x = build.view(node, 0)?;
    if matches!(x.layout, Layout::Last | Layout::FlatLast(_)) {
        return Err(format!("it reads {}, and channels must come second", x.layout.text()));
    }
    let kept = node.float("momentum", 0.9);
    if !(0.0..=1.0).contains(&kept) {
        return Err(format!("its momentum must be in [0, 1], got {kept}"));
    }
    // as decimal numbers: 0.9 of the old is 0.1 of the new
    let momentum = (1.0 - kept.to_string().parse::<f64>().unwrap_or_else(|_| f64::from(kept))) as f32;
    let fields = ["weight", "bias", "running_mean", "running_var"];
    let mut weights = Vec::new();
    for (field, at) in fields.into_iter().zip(1..) {
        let (shape, values) = vector(&*build.constant(node, at)?);
        weights.push((field, shape, values));
    }
    let channels = build.shapes[x.id.0].c;
    if let Some((field, shape, _)) = weights.iter().find(|weight| weight.1 != [channels]) {
        return Err(format!("its {field} must have {channels} values, got {shape:?}"));
    }
    if let Some(at) = weights[3].2.iter().position(|value| *value < 0.0) {
        return Err(format!("its variance of channel {at} is negative"));
    }
    let norm = Norm { eps: eps(node)?, momentum, ..Norm::new() };
    let id = build.layer((Some(node.inputs[1]), node.label()), norm, &[x.id], weights)?;
    Ok(Value::Tensor(View { id, ..x }))
}

/// Of each channel, or of the groups that they were joined in.
fn instance<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["epsilon"])?;
    let (scale, bias) = (build.constant(node, 1)?, build.constant(node, 2)?);
    if let Value::Grouped(view, Groups { count, normed: None }) = build.value(node, 0)? {
        let all = |constant: &Rc<Constant>, wanted: f32| {
            let values = constant.floats();
            values.len() == count && values.iter().all(|value| *value == wanted)
        };
        if !all(&scale, 1.0) || !all(&bias, 0.0) {
            return Err("it weighs groups of channels, and weights are supported for channels alone".into());
        }
        return Ok(Value::Grouped(view, Groups { count, normed: Some(eps(node)?) }));
    }
    let x = build.image(node, 0)?;
    let groups = build.shapes[x.id.0].c;
    normalized(build, node, x, GroupNorm { groups, eps: eps(node)? }, [vector(&scale), vector(&bias)])
}

fn group<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["epsilon", "num_groups", "stash_type"])?;
    let x = build.image(node, 0)?;
    let channels = build.shapes[x.id.0].c;
    let groups = usize::try_from(node.int("num_groups", 0)).ok().filter(|n| *n > 0 && channels.is_multiple_of(*n));
    let groups = groups.ok_or_else(|| format!("its num_groups must divide {channels} channels"))?;
    // before opset 21 there is one number for each group
    let each = |(shape, values): (Vec<usize>, Vec<f32>)| match shape[..] {
        [n] if n == groups && n != channels => {
            (vec![channels], values.iter().flat_map(|value| vec![*value; channels / groups]).collect())
        }
        _ => (shape, values),
    };
    let weights = [1, 2].map(|at| build.constant(node, at).map(|constant| each(vector(&constant))));
    let [scale, bias] = weights;
    normalized(build, node, x, GroupNorm { groups, eps: eps(node)? }, [scale?, bias?])
}

fn normalized<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    x: View,
    norm: GroupNorm,
    [scale, bias]: [(Vec<usize>, Vec<f32>); 2],
) -> Result<Value, String> {
    let weights = vec![("weight", scale.0, scale.1), ("bias", bias.0, bias.1)];
    let id = build.layer((Some(node.inputs[1]), node.label()), norm, &[x.id], weights)?;
    Ok(Value::Tensor(View { id, ..x }))
}

fn layer<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis", "epsilon", "stash_type"])?;
    let x = build.view(node, 0)?;
    let axis = node.int("axis", -1);
    let fits = match x.layout {
        Layout::Last => [-1, 3].contains(&axis),
        Layout::Flat => [-1, 1].contains(&axis),
        Layout::Image | Layout::FlatLast(_) => false,
    };
    if !fits {
        return Err(format!(
            "axis {axis} of {}: supported is the normalisation over channels that come last",
            x.layout.text()
        ));
    }
    let channels = build.shapes[x.id.0].c;
    let scale = vector(&*build.constant(node, 1)?);
    let bias = build.given(node, 2)?.map_or_else(|| (vec![channels], vec![0.0; channels]), |bias| vector(&bias));
    let weights = vec![("weight", scale.0, scale.1), ("bias", bias.0, bias.1)];
    let norm = LayerNorm { eps: eps(node)? };
    let id = build.layer((Some(node.inputs[1]), node.label()), norm, &[x.id], weights)?;
    Ok(Value::Tensor(View { id, ..x }))
}

fn local<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["alpha", "beta", "bias", "size"])?;
    let x = build.image(node, 0)?;
    let size = usize::try_from(node.int("size", 0)).ok().filter(|n| n % 2 == 1 && *n < 1 << 12);
    let size = size.ok_or("its size must be odd")?;
    let (alpha, beta, k) = (node.float("alpha", 1e-4) / size as f32, node.float("beta", 0.75), node.float("bias", 1.0));
    if ![alpha, beta, k].iter().all(|n| n.is_finite()) || size == 1 {
        return Err("its numbers must be finite, and its size 3 at least".into());
    }
    let id = build.layer((None, node.label()), Lrn { radius: size / 2, k, alpha, beta }, &[x.id], Vec::new())?;
    Ok(Value::Tensor(View { id, ..x }))
}
