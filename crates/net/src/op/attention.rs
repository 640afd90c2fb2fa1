//! Multi-head self-attention without its projections, over the whole plane or in windows.

use super::shape::Shape;
use super::spec::{Init, KerasOrder, OpSpec, ParamSpec, StoredTensor, product};
use super::toml_keys::{Context, Keys, OpFormat, WIDEST, Word};
use super::toml_value::Value;
use super::windows::Windows;

/// For each head, softmax(s Q K^T + B) V over the positions of a window (Vaswani et al. 2017, arXiv 1706.03762, eq. 1).
/// The input has the channels for all queries, then for all keys, then for all values, as a fused projection computes
/// them. In each third, the first d channels belong to the first head. The number of output channels is a third of the
/// number of input channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub heads: usize,
    /// Height and width of the windows, which divide the plane. `None` means a single window, the whole plane.
    pub window: Option<[usize; 2]>,
    /// Number of rows and columns by which the windows are shifted down and to the right. The plane continues at the
    /// opposite side, but positions from opposite sides get [`MASK`] added to their product (Liu et al. 2021, arXiv
    /// 2103.14030, section 3.2). No effect along an axis where a window spans the plane.
    pub shift: [usize; 2],
    /// True if the positions of a window are spread evenly over the plane instead of being neighbours (grid attention,
    /// Tu et al. 2022, arXiv 2204.01697, section 3.2).
    pub grid: bool,
    /// Number of rows at the bottom and columns at the right of the input that are padding. The output leaves them out.
    pub crop: [usize; 2],
    /// The factor s. `None` means 1 / sqrt(d).
    pub scale: Option<f32>,
    /// True if queries and keys are divided by their norms, and s is the exponential of a learned number per head, at
    /// most 100 (Liu et al. 2021, arXiv 2111.09883, eq. 2).
    pub cosine: bool,
    /// The term B, which depends on the head and on the difference of the positions.
    pub position_bias: Option<PositionBias>,
}

/// How the bias of relative positions is parameterised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionBias {
    /// A learned number for each head and difference of positions.
    Table,
    /// 16 sigmoid(W2 relu(W1 r + b1)), where r is the difference of the positions on a logarithmic scale. The value is
    /// the number of hidden units (Liu et al. 2021, arXiv 2111.09883, section 3.3).
    Continuous(usize),
}

impl Word for PositionBias {
    fn read(value: &Value, _: &Context) -> Result<Self, String> {
        let text = value.text().unwrap_or("");
        let hidden = text.strip_prefix("continuous(").and_then(|rest| rest.strip_suffix(')'));
        match (text, hidden.and_then(|hidden| hidden.parse().ok())) {
            ("table", _) => Ok(Self::Table),
            ("continuous", _) => Ok(Self::Continuous(HIDDEN)),
            (_, Some(hidden @ 1..=WIDEST)) => Ok(Self::Continuous(hidden)),
            _ => Err(format!(
                "\"table\", \"continuous\" or \"continuous(n)\" with n hidden units from 1 to {WIDEST} (default {HIDDEN})"
            )),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Table => "\"table\"".into(),
            Self::Continuous(HIDDEN) => "\"continuous\"".into(),
            Self::Continuous(hidden) => format!("\"continuous({hidden})\""),
        }
    }
}

/// Number of hidden units in the published networks.
pub const HIDDEN: usize = 512;

/// Added to the product of two positions in a shifted window if they come from opposite sides of the plane.
pub const MASK: f32 = -100.0;

/// Upper limit of the factor s for cosines.
pub const MOST_SCALE: f64 = 100.0;

/// Norms of queries and keys are at least this number, as in PyTorch's `normalize`.
pub const LEAST_NORM: f64 = 1e-12;

impl Attention {
    /// Creates attention over the whole plane without any bias.
    pub fn new(heads: usize) -> Self {
        Self {
            heads,
            window: None,
            shift: [0; 2],
            grid: false,
            crop: [0; 2],
            scale: None,
            cosine: false,
            position_bias: None,
        }
    }

    /// Returns the number of channels in a head's queries, if the input has `channels` channels.
    pub fn head_channels(&self, channels: usize) -> usize {
        channels / 3 / self.heads
    }

    /// Returns the factor that multiplies the products of queries and keys, unless they are cosines.
    pub fn scale(&self, channels: usize) -> f64 {
        self.scale.map_or_else(|| 1.0 / (self.head_channels(channels) as f64).sqrt(), f64::from)
    }

    /// Returns how the positions of the input's plane are divided into windows.
    pub fn windows(&self, x: Shape) -> Windows {
        let (plane, [rows, columns]) = ([x.h, x.w], self.crop);
        let kept = [x.h.saturating_sub(rows), x.w.saturating_sub(columns)];
        Windows::new(plane, kept, self.window.unwrap_or(plane), self.shift, self.grid)
    }

    /// Returns the number of parameters that precede the continuous position bias. These are a table and the factors
    /// for cosines, if the operation has them.
    pub fn leading_parameters(&self) -> usize {
        usize::from(self.position_bias == Some(PositionBias::Table)) + usize::from(self.cosine)
    }
}

impl OpSpec for Attention {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        let (x, heads, [rows, columns]) = (x[0], self.heads, self.crop);
        if !x.c.is_multiple_of(3) {
            return Err(format!(
                "its input must have the same number of channels for queries, keys and values, so a multiple of 3; it has {}",
                x.c
            ));
        }
        if heads == 0 || !(x.c / 3).is_multiple_of(heads) {
            return Err(format!("{heads} heads cannot share {} channels equally", x.c / 3));
        }
        let [h, w] = self.window.unwrap_or([x.h, x.w]);
        if h == 0 || w == 0 || !x.h.is_multiple_of(h) || !x.w.is_multiple_of(w) {
            return Err(format!("windows of {h}x{w} do not divide its input of {}x{}", x.h, x.w));
        }
        if self.shift[0] >= h || self.shift[1] >= w {
            return Err(format!("shift {:?} must be smaller than the window, {h}x{w}", self.shift));
        }
        if self.position_bias.is_some_and(|bias| bias != PositionBias::Table) && (h == 1 || w == 1) {
            return Err(format!("a continuous position bias needs windows of at least 2x2; they are {h}x{w}"));
        }
        if rows >= x.h || columns >= x.w {
            return Err(format!("crop {:?} must be smaller than its input, {}x{}", self.crop, x.h, x.w));
        }
        Ok(Shape::image(x.c / 3, x.h - rows, x.w - columns))
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let (heads, differences) = (self.heads, self.windows(x).differences());
        let start = Init::Normal(0.02);
        let mut params = Vec::new();
        if self.position_bias == Some(PositionBias::Table) {
            params.push(ParamSpec::new("relative_position_bias_table", vec![differences, heads], start));
        }
        if self.cosine {
            params.push(ParamSpec::new("logit_scale", vec![heads], Init::Constant(10f32.ln())));
        }
        if let Some(PositionBias::Continuous(hidden)) = self.position_bias {
            params.push(ParamSpec::new("cpb_mlp.0.weight", vec![hidden, 2], start));
            params.push(ParamSpec::new("cpb_mlp.0.bias", vec![hidden], Init::Constant(0.0)));
            params.push(ParamSpec::new("cpb_mlp.2.weight", vec![heads, hidden], start));
        }
        params
    }

    fn macs(&self, x: Shape) -> u64 {
        // Q K^T, and the product of the softmax and V
        product(&[2, x.plane(), self.windows(x).area(), x.c / 3])
    }
}

impl OpFormat for Attention {
    const WORDS: &'static [&'static str] = &["attention"];
    const TENSORS: &'static [StoredTensor] = &[
        StoredTensor::parameter("relative_position_bias_table", "position_bias", KerasOrder::Rows),
        StoredTensor::parameter("logit_scale", "logit_scale", KerasOrder::Vector),
        StoredTensor::parameter("cpb_mlp.0.weight", "position_kernel", KerasOrder::Rows),
        StoredTensor::parameter("cpb_mlp.0.bias", "position_hidden_bias", KerasOrder::Vector),
        StoredTensor::parameter("cpb_mlp.2.weight", "position_output_kernel", KerasOrder::Rows),
    ];

    fn cure(&self, inputs: &[Shape]) -> &'static str {
        let [x] = *inputs else { return "" };
        if !x.c.is_multiple_of(3) {
            return "add a conv with kernel = 1 and three times the channels, which computes queries, keys and values";
        }
        if self.heads == 0 || !(x.c / 3).is_multiple_of(self.heads) {
            return "heads must divide a third of the input's channels";
        }
        let [h, w] = self.window.unwrap_or([x.h, x.w]);
        if !x.h.is_multiple_of(h) || !x.w.is_multiple_of(w) {
            return "use a window that divides the input, or pad = [0, 0, ROWS, COLUMNS] in the conv before it, and \
                    crop = [ROWS, COLUMNS] here";
        }
        ""
    }

    fn plain(_: &str) -> Self {
        Self::new(1)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { heads, window, shift, grid, crop, scale, cosine, position_bias } = self;
        keys.needed("heads", heads);
        keys.key("window", window);
        keys.sides("shift", shift);
        keys.refuse("shift", *shift != [0; 2] && window.is_none(), "needs a window");
        keys.key("grid", grid);
        keys.refuse("grid", *grid && window.is_none(), "needs a window");
        keys.refuse("grid", *grid && *shift != [0; 2], "cannot be combined with shift");
        keys.sides("crop", crop);
        keys.key("scale", scale);
        keys.refuse("scale", scale.is_some_and(|scale| scale <= 0.0), "must be > 0");
        keys.key("cosine", cosine);
        keys.refuse("scale", scale.is_some() && *cosine, "cannot be combined with cosine, which learns it");
        keys.key("position_bias", position_bias);
    }
}
