//! How files store the tensors of a layer: names in PyTorch and Keras and Keras's order of elements.

/// A kind of layer with tensors.
#[derive(Debug, PartialEq, Eq)]
pub struct Stored {
    /// The kind's name in files.
    pub kind: &'static str,
    /// Its tensors in PyTorch's order, which is Keras's, too.
    pub tensors: &'static [StoredTensor],
}

/// One of its tensors.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// PyTorch's name, which parameters have in memory.
    pub torch: &'static str,
    /// Keras's name.
    pub keras: &'static str,
    /// How Keras orders it.
    pub order: KerasOrder,
    /// Whether it is a running statistic, which no gradient changes.
    pub running: bool,
}

/// Keras's order of a tensor's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KerasOrder {
    /// One dimension, the same in both.
    Vector,
    /// (out, in/groups, kh, kw) in PyTorch, (kh, kw, in/groups, out) in Keras.
    Filters,
    /// (out, in) in PyTorch, (in, out) in Keras. Behind a flatten the inputs run over (C, H, W) in PyTorch, over (H, W, C) in Keras.
    Matrix,
}

impl Stored {
    /// The tensor of this name in PyTorch, with its place in the order.
    pub fn by_torch(&self, name: &str) -> Option<(usize, &StoredTensor)> {
        self.tensors.iter().enumerate().find(|(_, tensor)| tensor.torch == name)
    }

    /// The tensor of this name in Keras.
    pub fn by_keras(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.iter().find(|tensor| tensor.keras == name)
    }

    /// Whether the order of a tensor depends on the image that was flattened before the layer.
    pub fn depends_on_flatten(&self) -> bool {
        self.tensors.iter().any(|tensor| tensor.order == KerasOrder::Matrix)
    }
}

impl StoredTensor {
    /// A parameter.
    pub const fn parameter(torch: &'static str, keras: &'static str, order: KerasOrder) -> Self {
        Self { torch, keras, order, running: false }
    }

    /// A running statistic of each channel.
    pub const fn running(torch: &'static str, keras: &'static str) -> Self {
        Self { torch, keras, order: KerasOrder::Vector, running: true }
    }
}
