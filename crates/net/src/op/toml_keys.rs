//! The keys of a node in a `net.toml` and their types. An operation names each of its keys once. The same code reads
//! and writes them.

use base::text::did_you_mean;

use super::shape::Shape;
use super::spec::{Init, StoredTensor};
use super::toml_value::{Fault, Kind, Table, Value};

/// How files describe an operation: its names and keys in a `net.toml`, and the tensors that files of weights store.
pub(crate) trait OpFormat {
    /// The values of `op` in a `net.toml`.
    const WORDS: &'static [&'static str];

    /// Its tensors. PyTorch and Keras have the same order.
    const TENSORS: &'static [StoredTensor] = &[];

    /// Advice that is the same for all inputs that do not fit, see [`OpFormat::cure`]. May be empty.
    const CURE: &'static str = "";

    /// Returns the value of `op` for this operation, one of [`OpFormat::WORDS`].
    fn kind(&self) -> &'static str {
        Self::WORDS[0]
    }

    /// Returns the advice for a node with these inputs, which do not fit the operation or exceed the limits on sizes.
    /// May be empty.
    fn cure(&self, _inputs: &[Shape]) -> &'static str {
        Self::CURE
    }

    /// Returns the operation with this name and default values.
    fn plain(word: &str) -> Self;

    /// Reads the operation's fields from the keys, or writes them to the keys. Both directions use this description.
    fn keys(&mut self, _keys: &mut Keys<'_>) {}
}

/// Advice for an operation on two inputs, such as `add`, if its inputs are missing or have different shapes.
pub(crate) const JOIN_CURE: &str = "write inputs = [\"one\", \"other\"]; if their shapes differ, add a shortcut, or a conv with \
                                    kernel = 1 that makes the shapes equal";

/// The direction: reading or writing a node's keys.
pub(crate) enum Keys<'a> {
    /// When reading, the keys that the operation names are removed from the table.
    Read(Reading<'a>),
    /// When writing, the operation's keys are collected here with their values in TOML.
    Write(Vec<(&'static str, String, Must)>),
}

/// The state of reading a node's keys.
pub(crate) struct Reading<'a> {
    /// The keys that were not read yet.
    pub keys: Table,
    pub context: &'a Context,
    /// Line of the node, for errors about missing keys and values that are not allowed.
    pub line: usize,
    /// All keys that the operation has named.
    pub known: Vec<&'static str>,
    /// The first error, if there was one.
    pub fault: Option<Fault>,
}

/// When a key must be in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Must {
    Have,
    /// Only if the value differs from the operation's default.
    Differ,
}

impl Keys<'_> {
    /// Reads or writes a key that has a default.
    pub fn key<T: Word>(&mut self, name: &'static str, value: &mut T) {
        self.pass(name, value, Must::Differ);
    }

    /// Reads or writes a required key.
    pub fn needed<T: Word>(&mut self, name: &'static str, value: &mut T) {
        self.pass(name, value, Must::Have);
    }

    fn pass<T: Word>(&mut self, name: &'static str, value: &mut T, must: Must) {
        match self {
            Self::Write(keys) => keys.push((name, value.write(), must)),
            Self::Read(reading) => reading.take(name, value, must),
        }
    }

    /// Returns the shape of the node's first input. When writing, the result is not used and is the shape of a single
    /// value.
    pub fn input(&self) -> Shape {
        match self {
            Self::Read(reading) => reading.context.x[0],
            Self::Write(_) => Shape::vector(1),
        }
    }

    /// Reads or writes padding, which is 0 by default. For the value "same", `same` computes TensorFlow's padding.
    /// Kernel and stride must be known.
    pub fn pads(&mut self, pads: &mut [usize; 4], same: impl FnOnce() -> [usize; 4]) {
        const NAME: &str = "pad";
        let mut value = Pads(*pads);
        match self {
            Self::Read(Reading { keys, known, fault: None, .. })
                if keys.get(NAME).is_some_and(|v| v.text() == Ok("same")) =>
            {
                keys.remove(NAME);
                known.push(NAME);
                value = Pads(same());
            }
            _ => self.pass(NAME, &mut value, Must::Differ),
        }
        *pads = value.0;
    }

    /// Reads or writes a number of rows and a number of columns. Both are 0 by default.
    pub fn sides(&mut self, name: &'static str, sides: &mut [usize; 2]) {
        let mut value = Sides(*sides);
        self.key(name, &mut value);
        *sides = value.0;
    }

    /// Reads or writes the rate at which values or samples are dropped.
    pub fn rate(&mut self, name: &'static str, value: &mut f32) {
        self.needed(name, value);
        self.refuse(name, !(0.0..1.0).contains(&*value), &format!("must be in [0, 1), got {value}"));
    }

    /// Reads or writes a positive number that is added to a variance.
    pub fn positive(&mut self, name: &'static str, value: &mut f32) {
        self.key(name, value);
        self.refuse(name, *value <= 0.0, &format!("must be > 0, got {value}"));
    }

    /// When reading, records an error about the key `name` if `wrong` is true: the value has the right type but is not
    /// allowed.
    pub fn refuse(&mut self, name: &str, wrong: bool, why: &str) {
        if let Self::Read(Reading { fault: fault @ None, line, .. }) = self
            && wrong
        {
            *fault = Some(Fault::new(*line, format!("{name} {why}")));
        }
    }
}

impl Reading<'_> {
    fn take<T: Word>(&mut self, name: &'static str, value: &mut T, must: Must) {
        self.known.push(name);
        if self.fault.is_some() {
            return;
        }
        match self.keys.remove(name) {
            Some(given) => match T::read(&given, self.context) {
                Ok(read) => *value = read,
                Err(expected) => {
                    let why = format!("{name}: expected {expected}; got {}", given.shown());
                    self.fault = Some(Fault::new(given.line, why));
                }
            },
            None if must == Must::Have => {
                self.fault = Some(Fault::new(self.line, format!("{name} is missing")));
            }
            None => {}
        }
    }

    /// Returns the first error, or an error if a key was not read.
    pub fn finish(self, op: &str) -> Result<(), Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let Some((key, value)) = self.keys.iter().next() else { return Ok(()) };
        let hint = match (did_you_mean(key, &self.known), elsewhere(key, &self.known)) {
            (_, Some(ours)) => format!("; trireme calls it {ours}"),
            (near, _) if !near.is_empty() => near,
            _ if self.known.is_empty() => "; its only keys are name, op, inputs and head".into(),
            _ => format!("; it has {}", self.known.join(", ")),
        };
        Err(Fault::new(value.line, format!("{op} has no key {key}{hint}")))
    }
}

/// Key names in PyTorch, Keras and ONNX, separated by spaces, and the name in trireme.
const ELSEWHERE: &[(&str, &str)] = &[
    ("out_channels filters", "channels"),
    ("out_features units", "features"),
    ("padding pads", "pad"),
    ("kernel_size kernel_shape", "kernel"),
    ("kernel_size kernel pool_size", "window"),
    ("strides", "stride"),
    ("dilation_rate dilations", "dilation"),
    ("group", "groups"),
    ("epsilon", "eps"),
    ("p", "rate"),
    ("negative_slope alpha", "slope"),
    ("ceil_mode", "ceil"),
    ("count_include_pad", "count_pad"),
    ("use_bias", "bias"),
];

/// Operations of PyTorch, Keras and ONNX whose names differ from trireme's by more than the spelling. The names are in
/// lower case, without `_` and `2d`, separated by spaces.
const OPERATIONS: &[(&str, &str)] = &[
    ("depthwiseconv", "conv"),
    ("dense gemm", "linear"),
    ("batchnorm batchnormalization", "norm"),
    ("layernormalization", "layer_norm"),
    ("groupnormalization", "group_norm"),
    ("localresponsenorm", "lrn"),
    ("maxpooling", "maxpool"),
    ("averagepool averagepooling adaptiveavgpool globalaveragepool globalaveragepooling", "avgpool"),
    ("swish", "silu"),
    ("stochasticdepth", "drop_path"),
    ("concatenate", "concat"),
    ("mul", "multiply"),
];

/// Returns trireme's operation for a name in PyTorch, Keras or ONNX, such as `Conv2d`.
pub fn operation_elsewhere(name: &str, ours: &[&'static str]) -> Option<&'static str> {
    let plain = |word: &str| {
        let small = word.to_lowercase().replace('_', "");
        small.strip_suffix("2d").map_or(small.clone(), String::from)
    };
    let theirs = plain(name);
    // PyTorch's variants such as `Dropout2d` drop whole channels, and trireme has no such operation
    if theirs == "dropout" && name.to_lowercase() != "dropout" {
        return None;
    }
    let known = OPERATIONS.iter().find(|(words, _)| is_among(&theirs, words)).map(|(_, ours)| *ours);
    known.or_else(|| ours.iter().copied().find(|word| plain(word) == theirs))
}

/// Returns true if a name that is not an operation of trireme seems to be the name of another program's attention
/// layer.
pub fn is_attention(name: &str) -> bool {
    name.to_lowercase().contains("attention")
}

fn elsewhere(key: &str, known: &[&'static str]) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(words, ours)| is_among(key, words) && known.contains(ours)).map(|(_, ours)| *ours)
}

fn is_among(word: &str, words: &str) -> bool {
    words.split(' ').any(|other| other == word)
}

/// Maximum value of a count, such as channels.
pub(crate) const MOST: usize = 1 << 24;

/// Maximum kernel, stride, dilation or padding.
pub(super) const WIDEST: usize = 1 << 12;

/// Values that the keys of a node can refer to.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Shapes of the node's inputs, at least one.
    pub x: Vec<Shape>,
    /// Number of classes in the data set.
    pub classes: usize,
}

/// A type that the value of a key can have.
pub(crate) trait Word: Sized {
    /// Reads a value. The error describes the expected value.
    fn read(value: &Value, context: &Context) -> Result<Self, String>;

    /// Formats the value as TOML text.
    fn write(&self) -> String;
}

/// A count of at least 1. `"classes"` stands for the number of classes in the data set, and `"channels"` for the
/// channels of the node's first input.
impl Word for usize {
    fn read(value: &Value, context: &Context) -> Result<Self, String> {
        match value.text() {
            Ok("classes") => Ok(context.classes),
            Ok("channels") => Ok(context.x[0].c),
            _ => value.count(1, MOST).map_err(|_| {
                format!("an integer from 1 to {MOST}, \"classes\" (of the data), or \"channels\" (of its input)")
            }),
        }
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Word for bool {
    fn read(value: &Value, _: &Context) -> Result<Self, String> {
        match value.kind {
            Kind::Switch(switch) => Ok(switch),
            _ => Err("true or false".into()),
        }
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Word for f32 {
    fn read(value: &Value, _: &Context) -> Result<Self, String> {
        let number = match value.kind {
            Kind::Float(number) => number as f32,
            Kind::Integer(number) => number as f32,
            _ => f32::NAN,
        };
        if number.is_finite() { Ok(number) } else { Err("a number within the range of f32".into()) }
    }

    fn write(&self) -> String {
        format!("{self:?}")
    }
}

/// Height and width: a number for both, or a list of two.
impl Word for [usize; 2] {
    fn read(value: &Value, _: &Context) -> Result<Self, String> {
        let each = list(value, 1);
        match each.as_deref() {
            Some(&[one]) => Ok([one, one]),
            Some(&[down, across]) => Ok([down, across]),
            _ => Err(format!("an integer from 1 to {WIDEST}, or two as [height, width]")),
        }
    }

    fn write(&self) -> String {
        let [down, across] = self;
        if down == across { down.to_string() } else { format!("[{down}, {across}]") }
    }
}

/// A key that may be absent. `None` has no TOML text, so it must be the operation's default, which is never written.
impl<T: Word> Word for Option<T> {
    fn read(value: &Value, context: &Context) -> Result<Self, String> {
        T::read(value, context).map(Some)
    }

    fn write(&self) -> String {
        self.as_ref().map_or_else(String::new, T::write)
    }
}

/// Padding at top, left, bottom and right, written as one number for all sides, two numbers for the vertical and the
/// horizontal direction, or four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pads(pub [usize; 4]);

impl Word for Pads {
    fn read(value: &Value, _: &Context) -> Result<Self, String> {
        let each = list(value, 0);
        match each.as_deref() {
            Some(&[all]) => Ok(Self([all; 4])),
            Some(&[down, across]) => Ok(Self([down, across, down, across])),
            Some(&[top, left, bottom, right]) => Ok(Self([top, left, bottom, right])),
            _ => Err(format!(
                "\"same\", an integer up to {WIDEST}, two as [vertical, horizontal], or four as [top, left, bottom, right]"
            )),
        }
    }

    fn write(&self) -> String {
        let Self([top, left, bottom, right]) = self;
        match (top == bottom && left == right, top == left) {
            (true, true) => top.to_string(),
            (true, false) => format!("[{top}, {left}]"),
            _ => format!("[{top}, {left}, {bottom}, {right}]"),
        }
    }
}

/// A number of rows and a number of columns, written as one number for both, or as two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sides([usize; 2]);

impl Word for Sides {
    fn read(value: &Value, _: &Context) -> Result<Self, String> {
        let each = list(value, 0);
        match each.as_deref() {
            Some(&[both]) => Ok(Self([both; 2])),
            Some(&[rows, columns]) => Ok(Self([rows, columns])),
            _ => Err(format!("an integer up to {WIDEST}, or two as [rows, columns]")),
        }
    }

    fn write(&self) -> String {
        self.0.write()
    }
}

/// Reads a number or a list of numbers.
fn list(value: &Value, least: usize) -> Option<Vec<usize>> {
    let one = |value: &Value| value.count(least, WIDEST).ok();
    match &value.kind {
        Kind::List(list) => list.iter().map(one).collect(),
        _ => one(value).map(|number| vec![number]),
    }
}

impl Word for Init {
    fn read(value: &Value, _: &Context) -> Result<Self, String> {
        let text = value.text().unwrap_or("");
        let (word, number) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            Some((word, number)) => {
                let number = number.trim().parse::<f32>().ok().filter(|n| n.is_finite());
                (word, Some(number.ok_or(INITS)?))
            }
            None => (text, None),
        };
        match (word, number) {
            ("he_normal", None) => Ok(Init::HeNormalFanIn),
            ("he_normal_fan_out", None) => Ok(Init::HeNormalFanOut),
            ("he_uniform", None) => Ok(Init::HeUniformFanIn),
            ("xavier", None) => Ok(Init::Xavier),
            ("uniform_fan_in", None) => Ok(Init::UniformFanIn),
            ("dirac", None) => Ok(Init::Dirac),
            ("constant", Some(n)) => Ok(Init::Constant(n)),
            ("normal", Some(n)) => Ok(Init::Normal(n)),
            ("truncated_normal", Some(n)) => Ok(Init::TruncatedNormal(n)),
            ("uniform", Some(n)) => Ok(Init::Uniform(n)),
            _ => Err(INITS.into()),
        }
    }

    fn write(&self) -> String {
        let text = match self {
            Self::HeNormalFanIn => "he_normal".into(),
            Self::HeNormalFanOut => "he_normal_fan_out".into(),
            Self::HeUniformFanIn => "he_uniform".into(),
            Self::Xavier => "xavier".into(),
            Self::UniformFanIn => "uniform_fan_in".into(),
            Self::Dirac => "dirac".into(),
            Self::Constant(n) => format!("constant({})", n.write()),
            Self::Normal(n) => format!("normal({})", n.write()),
            Self::TruncatedNormal(n) => format!("truncated_normal({})", n.write()),
            Self::Uniform(n) => format!("uniform({})", n.write()),
            // no key has this value: it follows from `sincos`
            Self::SinCos(columns) => format!("sincos({columns})"),
        };
        format!("\"{text}\"")
    }
}

const INITS: &str = "\"he_normal\", \"he_normal_fan_out\", \"he_uniform\", \"xavier\", \"uniform_fan_in\", \"dirac\", \"constant(x)\", \
                     \"normal(sd)\", \"truncated_normal(sd)\" or \"uniform(bound)\"";
