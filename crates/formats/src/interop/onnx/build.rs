//! The network under construction: the graph's values by name, and layers with their weights.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use net::{Activation, Add, Channels, Conv, Id, Init, Multiply, NetSpec, Op, Shape, SpaceToDepth, Token};

pub(crate) use super::axes::Layout;
use super::axes::{Axes, channels};
use super::function::{Binary, Form, Function, ScaledActivation};
use super::graph::{Dim, Graph, Node, Readers};
use super::names::Names;
use super::tensor::Constant;
pub(crate) use super::value::{Fill, Moment, Padding, Part, Scores, Value, View};

/// A tensor of a layer: its field, such as `weight`, its shape and its values.
pub(crate) type Weight = (&'static str, Vec<usize>, Vec<f32>);

/// Returns true if no value of an op's output is negative. The list has `true` for each input without negative values.
pub(crate) type SignRule = fn(&Op, &[bool]) -> bool;

pub(crate) struct Build<'a> {
    pub graph: &'a Graph<'a>,
    pub net: NetSpec,
    /// Shapes of all tensors. The first one is the image.
    pub shapes: Vec<Shape>,
    /// Tensors of each layer by layer name.
    pub weights: BTreeMap<String, Vec<Weight>>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
    values: BTreeMap<&'a str, Value>,
    /// The dimensions of [`Layout::Arranged`].
    arrangements: Vec<Axes>,
    /// Decoded tensors of the file that are in use. All users of a tensor share it.
    held: RefCell<BTreeMap<&'a str, Weak<Constant>>>,
    readers: Readers<'a>,
    names: Names,
    /// For each tensor, true if it has no negative elements for any input image.
    non_negative: Vec<bool>,
    sign_rule: SignRule,
    /// Number of bytes that weights may still use.
    left: usize,
}

/// Memory limit for the weights: `ROOM` bytes plus `ROOM_EACH` bytes for each byte of the file. A graph can compute its weights, so a small
/// file may need a lot of memory. VGG-19 needs 575 MB.
const ROOM: usize = 640 << 20;
const ROOM_EACH: usize = 3;

/// Largest number of images that a graph can fix.
const MOST_IMAGES: usize = 1 << 16;

/// Advice for a function that is not supported.
const REPLACE: &str = "Replace it by one of ReLU, ReLU6, LeakyReLU, Sigmoid, Hardsigmoid, Hardswish, Tanh, SiLU, GELU, or a product with a \
                       number, before the export";

impl<'a> Build<'a> {
    /// Creates a network without layers. The image has the name of the graph's input.
    pub fn new(
        graph: &'a Graph<'a>,
        name: &str,
        image: (&'a str, Shape, Layout),
        file_bytes: usize,
        sign_rule: SignRule,
    ) -> Self {
        let (image, shape, layout) = image;
        let view = View { id: Id(0), layout };
        let mut readers = Readers::new(graph);
        readers.name(view.id, image, 0);
        Self {
            graph,
            net: NetSpec::new(name, shape),
            shapes: vec![shape],
            weights: BTreeMap::new(),
            notes: Vec::new(),
            values: BTreeMap::from([(image, Value::Tensor(view))]),
            arrangements: Vec::new(),
            held: RefCell::default(),
            readers,
            names: Names::default(),
            non_negative: vec![false],
            sign_rule,
            left: file_bytes.saturating_mul(ROOM_EACH).saturating_add(ROOM),
        }
    }

    /// Sets the value of `name`, an output of `node`.
    pub fn set(&mut self, node: &Node<'a>, name: &'a str, value: Value) {
        if let Some(id) = value.tensor() {
            let same = |input: &&&str| self.values.get(**input).and_then(Value::tensor) == Some(id);
            // a node with two or more outputs reads its inputs only once
            let is_first = node.outputs.iter().find(|output| !output.is_empty()) == Some(&name);
            let read = if is_first { node.inputs.iter().filter(same).count() } else { 0 };
            self.readers.name(id, name, read);
        }
        self.values.insert(name, value);
    }

    /// Returns the value of a node's input number `at`.
    pub fn value(&self, node: &Node<'a>, at: usize) -> Result<Value, String> {
        let name = node.inputs.get(at).copied().filter(|name| !name.is_empty());
        self.named(name.ok_or_else(|| format!("it has no input number {}", at + 1))?)
    }

    /// Returns the value with this name.
    pub fn named(&self, name: &'a str) -> Result<Value, String> {
        match self.values.get(name) {
            Some(Value::Tensor(View { id, layout: Layout::Arranged(at) })) => {
                Ok(Value::Arranged(*id, self.arrangements[*at].clone()))
            }
            Some(value) => Ok(value.clone()),
            None => self.stored(name).map(Value::Constant),
        }
    }

    /// Returns the value of a node's input number `at`. Adds a layer if the input is a [`Value::Function`].
    pub fn computed(&mut self, node: &Node<'a>, at: usize) -> Result<Value, String> {
        if let Value::Function(..) = self.value(node, at)? {
            self.any_view(node, at)?;
        }
        self.value(node, at)
    }

    /// Returns true if the value is already known.
    pub fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns true if the value is the output of an unsupported node.
    pub fn is_missing(&self, name: &str) -> bool {
        matches!(self.values.get(name), Some(Value::Missing))
    }

    /// Returns true if the node has an input number `at`.
    pub fn has(node: &Node<'a>, at: usize) -> bool {
        node.inputs.get(at).is_some_and(|name| !name.is_empty())
    }

    fn stored(&self, name: &'a str) -> Result<Rc<Constant>, String> {
        let held = self.held.borrow().get(name).and_then(Weak::upgrade);
        if let Some(constant) = held {
            return Ok(constant);
        }
        let tensor = self.graph.tensors.get(name).ok_or_else(|| format!("no node computes its input {name}"))?;
        let constant = Rc::new(tensor.constant()?);
        self.held.borrow_mut().insert(name, Rc::downgrade(&constant));
        Ok(constant)
    }

    /// Returns an input that must be a constant.
    pub fn constant(&self, node: &Node<'a>, at: usize) -> Result<Rc<Constant>, String> {
        match self.value(node, at)? {
            Value::Constant(constant) => Ok(constant),
            _ => Err(format!("its input {} is computed, but must be a weight in the file", node.inputs[at])),
        }
    }

    /// Returns an optional input that must be a constant.
    pub fn given(&self, node: &Node<'a>, at: usize) -> Result<Option<Rc<Constant>>, String> {
        if Self::has(node, at) { self.constant(node, at).map(Some) } else { Ok(None) }
    }

    /// Returns an input that must be a constant, for readers that list its elements twice, as i64 or usize. Fails if the
    /// lists would exceed the memory limit, which a repeated value can do.
    pub fn listed(&self, node: &Node<'a>, at: usize) -> Result<Rc<Constant>, String> {
        let constant = self.constant(node, at)?;
        self.fits(constant.values.len().saturating_mul(2 * size_of::<i64>()))?;
        Ok(constant)
    }

    /// Returns the integers of input number `at`. In older opsets, they are in the attribute `name` instead. Returns `None` if the node has
    /// neither.
    pub fn numbers(&self, node: &Node<'a>, at: usize, name: &str) -> Result<Option<Vec<i64>>, String> {
        match Self::has(node, at) {
            true => Ok(Some(self.listed(node, at)?.ints())),
            false => Ok(node.ints(name).map(<[i64]>::to_vec)),
        }
    }

    /// Returns an input as a tensor of the network. Adds a layer if the input is a [`Value::Function`] or padded with zeros.
    pub fn view(&mut self, node: &Node<'a>, at: usize) -> Result<View, String> {
        let view = self.any_view(node, at)?;
        self.with_layout(view)
    }

    /// Works like [`Self::view`], but also accepts a tensor with rearranged dimensions.
    pub fn any_view(&mut self, node: &Node<'a>, at: usize) -> Result<View, String> {
        let value = self.value(node, at)?;
        self.made(node.inputs[at], value)
    }

    /// Returns an error if the dimensions are rearranged.
    fn with_layout(&self, view: View) -> Result<View, String> {
        let Layout::Arranged(at) = view.layout else { return Ok(view) };
        Err(rearranged(self.shapes[view.id.0], &self.arrangements[at]))
    }

    /// Returns the dimensions of [`Layout::Arranged`].
    pub fn arrangement(&self, at: usize) -> &Axes {
        &self.arrangements[at]
    }

    /// Returns an input as a tensor of the network with the layout (N, C, H, W).
    pub fn image(&mut self, node: &Node<'a>, at: usize) -> Result<View, String> {
        let view = self.view(node, at)?;
        match view.layout {
            Layout::Image => Ok(view),
            other => Err(format!("it reads {}, expected images (N, C, H, W)", other.text())),
        }
    }

    /// Returns the tensor of a graph output. Adds a layer if the output is a [`Value::Function`] or padded with zeros.
    pub fn output(&mut self, name: &'a str) -> Result<View, String> {
        let value = self.values.get(name).cloned().ok_or_else(|| format!("no node computes its output {name}"))?;
        let view = self.made(name, value)?;
        self.with_layout(view)
    }

    /// Returns the number of images if the graph fixes it, or `None` if the number may vary or is too large.
    pub fn images(&self) -> Option<usize> {
        match self.graph.inputs.first()?.dims.first()? {
            Dim::Known(count) => usize::try_from(*count).ok().filter(|count| (1..=MOST_IMAGES).contains(count)),
            Dim::Named(_) => None,
        }
    }

    /// Returns an input as a tensor of the network and the dimensions that it has in the graph.
    pub fn axes(&mut self, node: &Node<'a>, at: usize) -> Result<(Id, Axes), String> {
        let count = self.images().unwrap_or(1);
        let (View { id, layout }, padding) = match self.computed(node, at)? {
            Value::Arranged(id, axes) => return Ok((id, axes)),
            Value::Padded(view, padding) if padding.fill == Fill::Zeros => (view, padding),
            _ => (self.view(node, at)?, Padding::NONE),
        };
        let axes = Axes::of(layout, padding.around(self.shapes[id.0]), count);
        let axes = axes.ok_or_else(|| format!("it rearranges {}, which is not supported", layout.text()))?;
        Ok((id, Axes { pads: padding.cells, ..axes }))
    }

    /// Returns the value for a tensor with these dimensions in the graph. Adds a layer if they are a single position, a
    /// channel shuffle, or squares of pixels in the channels.
    pub fn settled(&mut self, label: &str, id: Id, axes: Axes) -> Result<Value, String> {
        if axes.table.is_some() {
            // lists of positions count against the memory budget, so that a small file cannot need a lot of memory
            self.take(size_of::<u32>() * axes.count()?)?;
        }
        let mut axes = axes.simplified()?;
        let (x, padding) = (self.shapes[id.0], Padding { cells: axes.pads, fill: Fill::Zeros });
        if let Some(layout) = axes.layout(padding.around(x)) {
            let view = View { id, layout };
            return Ok(if padding == Padding::NONE { Value::Tensor(view) } else { Value::Padded(view, padding) });
        }
        if let Some((rest, at, pixels)) = axes.pixels(x)
            && let Some(size) = rest.squares(x, &pixels)
        {
            return self.merged_pixels(label, id, (rest, at), size);
        }
        if padding != Padding::NONE || axes.table.is_some() {
            return Ok(Value::Arranged(id, axes));
        }
        if let Some(groups) = axes.shuffled(x) {
            let id = self.layer((None, label), Channels::shuffle(x.c, groups), &[id], Vec::new())?;
            return Ok(Value::Tensor(View { id, layout: Layout::Image }));
        }
        let position = std::mem::take(&mut axes.first_position);
        if x.plane() > 1
            && let Some(layout) = axes.layout(Shape::vector(x.c))
        {
            let id = self.layer((None, label), Token(position), &[id], Vec::new())?;
            return Ok(Value::Tensor(View { id, layout }));
        }
        Ok(Value::Arranged(id, Axes { first_position: position, ..axes }))
    }

    /// Adds a layer that moves the pixels of each square to the channels. The channels are axis `at`, and the axes list
    /// the first pixel of each square.
    pub fn merged_pixels(
        &mut self,
        label: &str,
        id: Id,
        (axes, at): (Axes, usize),
        size: usize,
    ) -> Result<Value, String> {
        let id = self.layer((None, label), SpaceToDepth(size), &[id], Vec::new())?;
        let mut axes = axes.whole().ok_or("it mixes positions and channels")?;
        axes.axes[at] = channels(self.shapes[id.0].c);
        self.settled(label, id, axes)
    }

    fn made(&mut self, name: &'a str, value: Value) -> Result<View, String> {
        match value {
            Value::Tensor(view) => Ok(view),
            Value::Function(base, function) => {
                let view = self.realised(base, &function)?;
                self.readers.name(view.id, name, 0);
                self.values.insert(name, Value::Tensor(view));
                Ok(view)
            }
            Value::Padded(x, Padding { cells, fill: Fill::Zeros }) => {
                let id = self.framed(name, x.id, [0; 4], cells)?;
                let view = View { id, ..x };
                self.readers.name(view.id, name, 0);
                self.values.insert(name, Value::Tensor(view));
                Ok(view)
            }
            Value::Padded(_, Padding { fill: Fill::Mirrored, .. }) => {
                Err("it reads a tensor padded with mirrored cells (mode=reflect), but only blur pooling may".into())
            }
            Value::Padded(_, Padding { fill: Fill::Lowest, .. }) => {
                Err("it reads a tensor padded with -infinity, but only max pools may".into())
            }
            Value::Strided(..) => {
                Err("it reads a strided slice of an image, which is supported only if zero channels are added to it"
                    .into())
            }
            Value::Arranged(id, axes) => {
                let padded = axes.pads != [0; 4];
                let view = self.rearranged(name, id, axes)?;
                if padded {
                    self.readers.name(view.id, name, 0);
                }
                self.values.insert(name, Value::Tensor(view));
                Ok(view)
            }
            Value::Norms(..) => Err("it reads norms, but only a division by the norms is supported".into()),
            Value::Scores(_) => Err("it reads the products of queries and keys, which only attention may".into()),
            Value::List(_) => {
                Err("its input is flattened to one dimension over all images. Reshape to (N, -1) instead".into())
            }
            Value::Constant(_) => Err(format!("its input {name} is a weight, expected a computed tensor")),
            Value::Sizes(_) | Value::Size(_) => {
                Err(format!("its input {name} is the size of a tensor, expected an image"))
            }
            Value::Moment(..) => {
                Err("it reads a mean over channels, which is supported only in the formula of a layer normalisation"
                    .into())
            }
            Value::Missing => Err(format!("its input {name} is computed by an unsupported node")),
        }
    }

    /// Adds a layer that computes a function, or several layers if no single layer computes it.
    fn realised(&mut self, base: View, function: &Rc<Function>) -> Result<View, String> {
        if let Some(activation) = function.activation() {
            return self.layer_on((None, &function.name), activation, base, Vec::new());
        }
        if let Some(ScaledActivation { inner, activation, outer }) = function.scaled_activation() {
            let mut view = base;
            for factor in [Activation::Scale(inner), activation, Activation::Scale(outer)] {
                if factor != Activation::Scale(1.0) {
                    view = self.layer_on((None, &function.name), factor, view, Vec::new())?;
                }
            }
            return Ok(view);
        }
        if let Some(factors) = function.affine() {
            return self.affine(&function.name, base, factors);
        }
        match &function.form {
            Form::Binary(of, f, g) if !f.is_number() && !g.is_number() => {
                let (a, b) = (self.part(base, f)?, self.part(base, g)?);
                self.pair(&function.name, *of, [a, b])
                    .map_err(|why| format!("it reads the output of {}: {why}", function.made_by()))
            }
            Form::Binary(of, f, g) => {
                let other = if f.is_number() { g } else { f };
                let argument = |part: &Rc<Function>| if part.is_number() { part.clone() } else { Function::argument() };
                let outer = Form::Binary(*of, argument(f), argument(g));
                self.outer(base, other, Function::new(&function.name, outer))
            }
            Form::Unary(of, f) => {
                self.outer(base, f, Function::new(&function.name, Form::Unary(*of, Function::argument())))
            }
            Form::Argument => Ok(base),
            Form::Number(_) => Err("it is a constant, but must depend on the image".into()),
        }
    }

    /// Adds the layers of the function `inner`, and a layer that applies `outer` to their result.
    fn outer(&mut self, base: View, inner: &Rc<Function>, outer: Function) -> Result<View, String> {
        let unknown = || {
            let maker = outer.made_by();
            format!("it reads the output of {maker}, which does not match any supported activation. {REPLACE}")
        };
        let activation = outer.activation().ok_or_else(unknown)?;
        if matches!(inner.form, Form::Argument) {
            return Err(unknown());
        }
        let inner = self.part(base, inner)?;
        self.layer_on((None, &outer.name), activation, inner, Vec::new())
    }

    /// Adds the layers that compute `part`, a function inside another one, unless they already exist.
    fn part(&mut self, base: View, part: &Rc<Function>) -> Result<View, String> {
        let known = self.values.iter().find_map(|(name, value)| match value {
            Value::Function(_, function) if Rc::ptr_eq(function, part) => Some(*name),
            _ => None,
        });
        match known {
            Some(name) => self.made(name, Value::Function(base, part.clone())),
            None => self.realised(base, part),
        }
    }

    /// Adds the sum or product of two tensors.
    pub fn pair(&mut self, label: &str, of: Binary, [a, b]: [View; 2]) -> Result<View, String> {
        if a.layout != b.layout {
            return Err(format!("it cannot combine {} and {}", a.layout.text(), b.layout.text()));
        }
        let vector = |view: View| self.shapes[view.id.0].plane() == 1;
        let (op, inputs): (Op, _) = match of {
            Binary::Add => (Add.into(), [a.id, b.id]),
            Binary::Mul if vector(b) => (Multiply.into(), [a.id, b.id]),
            Binary::Mul if vector(a) => (Multiply.into(), [b.id, a.id]),
            _ => {
                return Err("two tensors can only be added, or multiplied if one has a factor for each channel".into());
            }
        };
        self.layer((None, label), op, &inputs, Vec::new()).map(|id| View { id, ..a })
    }

    /// Adds a layer and returns its output. Its name comes from the name of its weight or its node. Checks the weights
    /// against the parameters of the op.
    pub fn layer(
        &mut self,
        (weight, label): (Option<&str>, &str),
        op: impl Into<Op>,
        inputs: &[Id],
        weights: Vec<Weight>,
    ) -> Result<Id, String> {
        let op = op.into();
        let x: Vec<Shape> = inputs.iter().map(|id| self.shapes[id.0]).collect();
        let y = op.output_within_limits(&x).map_err(|why| format!("{}: {why}", op.kind()))?;
        for parameter in op.params(x[0]) {
            let found = weights.iter().find(|weight| weight.0 == parameter.field);
            let shape = found.map(|weight| weight.1.as_slice());
            if shape != Some(parameter.shape.as_slice()) {
                let got = shape.map_or("none".to_string(), |shape| format!("{shape:?}"));
                let (field, expected, read) = (parameter.field, parameter.shape, x[0]);
                return Err(format!("its {field} must have the shape {expected:?} for an input of {read}, got {got}"));
            }
        }
        self.check(&weights)?;
        let name = self.names.take(weight, label, op.kind());
        if !weights.is_empty() {
            self.weights.insert(name.clone(), weights);
        }
        let signs: Vec<bool> = inputs.iter().map(|id| self.non_negative[id.0]).collect();
        self.non_negative.push((self.sign_rule)(&op, &signs));
        let id = self.net.join(&name, op, inputs);
        self.shapes.push(y);
        Ok(id)
    }

    /// Adds a layer that reads one tensor. Its output has the same layout in the graph. See [`Self::layer`].
    pub fn layer_on(
        &mut self,
        names: (Option<&str>, &str),
        op: impl Into<Op>,
        x: View,
        weights: Vec<Weight>,
    ) -> Result<View, String> {
        self.layer(names, op, &[x.id], weights).map(|id| View { id, ..x })
    }

    /// Computes `scale * x + shift` with a depthwise 1x1 convolution.
    fn affine(&mut self, label: &str, x: View, factors: [f64; 2]) -> Result<View, String> {
        let channels = self.shapes[x.id.0].c;
        let [scale, shift] = factors.map(|factor| vec![factor as f32; channels]);
        let (conv, weights) = each_channel(scale, shift);
        self.layer_on((None, label), conv, x, weights)
    }

    /// Removes `crop` cells at top, left, bottom and right of each channel, and adds `zeros` cells of zeros there.
    /// There is no layer type for this, so a depthwise convolution is added. Its kernel has a one in one cell and zeros
    /// elsewhere.
    pub fn framed(&mut self, label: &str, x: Id, crop: [usize; 4], zeros: [usize; 4]) -> Result<Id, String> {
        let channels = self.shapes[x.0].c;
        let [top, left, bottom, right] = crop;
        let [height, width] = [top + bottom + 1, left + right + 1];
        let mut filter = vec![0.0; height * width];
        filter[top * width + left] = 1.0;
        let conv = Conv::new(channels, 1).groups(channels).kernel([height, width]).pads(zeros);
        let note = "depthwise convolutions with a single weight of 1 pad or crop images; list them in `freeze.patterns`, so that they are \
                    not trained";
        if !self.notes.iter().any(|other| other == note) {
            self.notes.push(note.into());
        }
        let weight = ("weight", vec![channels, 1, height, width], filter.repeat(channels));
        self.layer((None, label), conv, &[x], vec![weight])
    }

    /// Returns a tensor with rearranged dimensions. Adds a layer if it is padded.
    pub fn rearranged(&mut self, label: &str, id: Id, axes: Axes) -> Result<View, String> {
        if !axes.is_unscaled() {
            return Err(rearranged(self.shapes[id.0], &axes));
        }
        let id = if axes.pads == [0; 4] { id } else { self.framed(label, id, [0; 4], axes.pads)? };
        let axes = Axes { pads: [0; 4], ..axes };
        let known = self.arrangements.iter().rposition(|other| *other == axes);
        let at = known.unwrap_or_else(|| {
            self.arrangements.push(axes);
            self.arrangements.len() - 1
        });
        Ok(View { id, layout: Layout::Arranged(at) })
    }

    /// Checks that all values are finite, and that the weights stay within the memory limit.
    fn check(&mut self, weights: &[Weight]) -> Result<(), String> {
        for (field, _, values) in weights {
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                return Err(format!(
                    "its {field} has the value {} (element {at}); training cannot start from it",
                    values[at]
                ));
            }
            self.take(4 * values.len())?;
        }
        Ok(())
    }

    /// Counts bytes of weights that are computed from the file. Fails if they exceed the memory limit.
    pub fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.fits(bytes)?;
        self.left -= bytes;
        Ok(())
    }

    /// Fails if this many bytes would exceed the memory limit. Does not count them.
    pub fn fits(&self, bytes: usize) -> Result<(), String> {
        match bytes <= self.left {
            true => Ok(()),
            false => Err("the nodes compute more weights than the memory limit for a file of this size allows".into()),
        }
    }

    /// Returns true if exactly one node reads a tensor. Nodes that only rename it do not count.
    pub fn has_one_reader(&self, id: Id) -> bool {
        self.readers.is_one(id)
    }

    /// Returns true if the tensor has no negative elements for any input image.
    pub fn is_non_negative(&self, id: Id) -> bool {
        self.non_negative[id.0]
    }

    /// Returns the index of the layer that computes a tensor, or `None` for the input image.
    pub fn maker(&self, id: Id) -> Option<usize> {
        id.0.checked_sub(1)
    }
}

/// Returns a depthwise 1x1 convolution, which multiplies each channel by a factor and adds a bias, and its weights.
pub(crate) fn each_channel(scale: Vec<f32>, shift: Vec<f32>) -> (Conv, Vec<Weight>) {
    let channels = scale.len();
    let conv = Conv { groups: channels, ..Conv::new(channels, 1) }.bias_from(Init::UniformFanIn);
    (conv, vec![("weight", vec![channels, 1, 1, 1], scale), ("bias", vec![channels], shift)])
}

fn rearranged(shape: Shape, axes: &Axes) -> String {
    let sizes: Vec<String> = axes.sizes().iter().map(ToString::to_string).collect();
    format!(
        "its input is a tensor of {shape} whose dimensions are rearranged to ({}), which only attention, functions of single elements, \
         normalizations and matrix products over all channels may read",
        sizes.join(", ")
    )
}

/// Converts a node and returns its value. The error says why the node is not supported.
pub(crate) type Handler = for<'a> fn(&mut Build<'a>, &Node<'a>) -> Result<Value, String>;

/// An operator: its name, the largest number of inputs that its handler reads, and the handler. More inputs are an
/// error, so that no input is ignored silently.
pub(crate) type Operator = (&'static str, usize, Handler);

/// No limit on inputs, for operators that read all inputs.
pub(crate) const ANY: usize = usize::MAX;
