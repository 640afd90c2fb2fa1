//! The keys of one node and their types. An operation names each of its keys once, and both reading and writing follow from that.

use loaders::text::did_you_mean;

use super::value::{Fault, Kind, Table, Value};
use crate::{Init, Shape};

/// One of the two ways.
pub(super) enum Keys<'a> {
    /// Keys are taken out of the table as the operation names them.
    Read(Reading<'a>),
    /// Keys of the operation, and their values in TOML.
    Write(Vec<(&'static str, String, Must)>),
}

/// A node that is read.
pub(super) struct Reading<'a> {
    /// What is left of it.
    pub keys: Table,
    pub context: &'a Context,
    /// Its line, for keys that are missing.
    pub line: usize,
    /// All keys that the operation has named.
    pub known: Vec<&'static str>,
    /// The first thing that was wrong.
    pub fault: Option<Fault>,
}

/// Whether a file must have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Must {
    /// Always.
    Have,
    /// Unless the value is that of the plain operation.
    Differ,
}

impl Keys<'_> {
    /// A key with a default: the value that the plain operation has.
    pub fn key<T: Word>(&mut self, name: &'static str, value: &mut T) {
        self.pass(name, value, Must::Differ);
    }

    /// A key that every such node has.
    pub fn needed<T: Word>(&mut self, name: &'static str, value: &mut T) {
        self.pass(name, value, Must::Have);
    }

    fn pass<T: Word>(&mut self, name: &'static str, value: &mut T, must: Must) {
        match self {
            Self::Write(keys) => keys.push((name, value.write(), must)),
            Self::Read(reading) => reading.take(name, value, must),
        }
    }

    /// Shape of the node's first input; on the way into a file, where nothing depends on it, a single value.
    pub fn input(&self) -> Shape {
        match self {
            Self::Read(reading) => reading.context.x[0],
            Self::Write(_) => Shape::vector(1),
        }
    }

    /// Padding, 0 where it is not given; `same` gives TensorFlow's for "same", once kernel and stride are known.
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

    /// A share of values or samples that is left out.
    pub fn rate(&mut self, name: &'static str, value: &mut f32) {
        self.needed(name, value);
        self.refuse(name, !(0.0..1.0).contains(&*value), "must be in [0, 1)");
    }

    /// What is added to a variance.
    pub fn positive(&mut self, name: &'static str, value: &mut f32) {
        self.key(name, value);
        self.refuse(name, *value <= 0.0, "must be > 0");
    }

    /// A value that has the right type and is not allowed all the same.
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

    /// The fault that was found, or a key that the operation has not named.
    pub fn finish(self, op: &str) -> Result<(), Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let Some((key, value)) = self.keys.iter().next() else { return Ok(()) };
        let hint = match (did_you_mean(key, &self.known), elsewhere(key, &self.known)) {
            (_, Some(ours)) => format!("; here it is {ours}"),
            (near, _) if !near.is_empty() => near,
            _ if self.known.is_empty() => "; it has none but name, op, inputs and head".into(),
            _ => format!("; it has {}", self.known.join(", ")),
        };
        Err(Fault::new(value.line, format!("{op} has no key {key}{hint}")))
    }
}

/// Words of PyTorch, Keras and ONNX, and ours.
const ELSEWHERE: &[(&str, &str)] = &[
    ("out_channels", "channels"),
    ("filters", "channels"),
    ("out_features", "features"),
    ("units", "features"),
    ("padding", "pad"),
    ("pads", "pad"),
    ("kernel_size", "kernel"),
    ("kernel_size", "window"),
    ("kernel", "window"),
    ("kernel_shape", "kernel"),
    ("pool_size", "window"),
    ("strides", "stride"),
    ("dilation_rate", "dilation"),
    ("dilations", "dilation"),
    ("group", "groups"),
    ("epsilon", "eps"),
    ("p", "rate"),
    ("negative_slope", "slope"),
    ("alpha", "slope"),
    ("ceil_mode", "ceil"),
    ("count_include_pad", "count_pad"),
    ("use_bias", "bias"),
];

/// Operations of PyTorch, Keras and ONNX that are not ours in another spelling; in small letters, without `_` and `2d`.
const OPERATIONS: &[(&str, &str)] = &[
    ("depthwiseconv", "conv"),
    ("dense", "linear"),
    ("gemm", "linear"),
    ("batchnorm", "norm"),
    ("batchnormalization", "norm"),
    ("layernormalization", "layer_norm"),
    ("groupnormalization", "group_norm"),
    ("localresponsenorm", "lrn"),
    ("maxpooling", "maxpool"),
    ("averagepool", "avgpool"),
    ("averagepooling", "avgpool"),
    ("adaptiveavgpool", "avgpool"),
    ("globalaveragepool", "avgpool"),
    ("globalaveragepooling", "avgpool"),
    ("swish", "silu"),
    ("stochasticdepth", "drop_path"),
    ("concatenate", "concat"),
    ("mul", "multiply"),
];

/// Our operation for one of PyTorch's, Keras's or ONNX's, such as `Conv2d`.
pub fn operation_elsewhere(name: &str, ours: &[&'static str]) -> Option<&'static str> {
    let plain = |word: &str| {
        let small = word.to_lowercase().replace('_', "");
        small.strip_suffix("2d").map_or(small.clone(), String::from)
    };
    let theirs = plain(name);
    // PyTorch's drops whole channels, which is no operation here
    if theirs == "dropout" && name.to_lowercase() != "dropout" {
        return None;
    }
    let known = OPERATIONS.iter().find(|(word, _)| *word == theirs).map(|(_, ours)| *ours);
    known.or_else(|| ours.iter().copied().find(|word| plain(word) == theirs))
}

/// Returns true if this is the name of an attention layer. Attention is not supported.
pub fn is_attention(name: &str) -> bool {
    name.to_lowercase().contains("attention")
}

fn elsewhere(key: &str, known: &[&'static str]) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(theirs, ours)| *theirs == key && known.contains(ours)).map(|(_, ours)| *ours)
}

/// Largest count.
pub(super) const MOST: usize = 1 << 24;

/// Largest kernel, stride, dilation or padding.
const WIDEST: usize = 1 << 12;

/// What the words of a node are relative to.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// Shapes of its inputs; at least one.
    pub x: Vec<Shape>,
    /// Classes of the data set.
    pub classes: usize,
}

/// The type of a key.
pub(super) trait Word: Clone + PartialEq {
    /// Reads a value; the error says what was expected.
    fn read(value: &Value, context: &Context) -> Result<Self, String>;

    /// The value in TOML.
    fn write(&self) -> String;
}

/// A number of things, from 1; `"classes"` of the data set, or `"channels"` of the node's first input.
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
        if number.is_finite() { Ok(number) } else { Err("a number that f32 holds".into()) }
    }

    fn write(&self) -> String {
        format!("{self:?}")
    }
}

/// Down and across: one number for both, or a list of two.
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

/// As the value; the key is left out for none.
impl<T: Word> Word for Option<T> {
    fn read(value: &Value, context: &Context) -> Result<Self, String> {
        T::read(value, context).map(Some)
    }

    fn write(&self) -> String {
        self.as_ref().map_or_else(String::new, T::write)
    }
}

/// Cells at the top, left, bottom, right: one number for all, two for both directions, or four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pads(pub [usize; 4]);

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

/// A number or a list of numbers.
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
            Some((word, number)) => (word, number.trim().parse::<f32>().ok().filter(|n| n.is_finite())),
            None => (text, None),
        };
        let init = match (word, number) {
            ("he_normal", None) => Init::HeNormalFanIn,
            ("he_normal_fan_out", None) => Init::HeNormalFanOut,
            ("he_uniform", None) => Init::HeUniformFanIn,
            ("xavier", None) => Init::Xavier,
            ("uniform_fan_in", None) => Init::UniformFanIn,
            ("dirac", None) => Init::Dirac,
            ("constant", Some(n)) => Init::Constant(n),
            ("normal", Some(n)) => Init::Normal(n),
            ("truncated_normal", Some(n)) => Init::TruncatedNormal(n),
            ("uniform", Some(n)) => Init::Uniform(n),
            _ => return Err(INITS.into()),
        };
        if init.write().trim_matches('"') == text.replace(' ', "") || number.is_some() {
            Ok(init)
        } else {
            Err(INITS.into())
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
        };
        format!("\"{text}\"")
    }
}

const INITS: &str = "\"he_normal\", \"he_normal_fan_out\", \"he_uniform\", \"xavier\", \"uniform_fan_in\", \"dirac\", \"constant(x)\", \
                     \"normal(sd)\", \"truncated_normal(sd)\" or \"uniform(bound)\"";
