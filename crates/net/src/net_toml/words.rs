//! Types that the key of a node can have: how each is read, and how it is written.

use super::value::{Kind, Value};
use crate::{Init, Shape};

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
