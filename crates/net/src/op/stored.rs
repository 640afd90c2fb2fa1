//! How files store a layer's tensors: their names in PyTorch and Keras, and the element order in Keras.

/// A kind of layer with tensors.
#[derive(Debug, PartialEq, Eq)]
pub struct Stored {
    pub kind: &'static str,
    /// Its tensors in PyTorch's order, which is also Keras's.
    pub tensors: &'static [StoredTensor],
}

#[derive(Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// PyTorch's name. Parameters have this name in memory.
    pub torch: &'static str,
    pub keras: &'static str,
    /// Keras's order of its elements.
    pub order: KerasOrder,
    /// Whether it is a running statistic, which has no gradient.
    pub running: bool,
}

/// Keras's order of a tensor's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KerasOrder {
    /// One dimension, the same in both programs.
    Vector,
    /// (out, in/groups, kh, kw) in PyTorch, (kh, kw, in/groups, out) in Keras.
    Filters,
    /// (out, in) in PyTorch, (in, out) in Keras. After a flatten the inputs are ordered (C, H, W) in PyTorch and (H, W,
    /// C) in Keras.
    Matrix,
}

impl Stored {
    /// Returns the tensor with this name in PyTorch, and its index.
    pub fn by_torch(&self, name: &str) -> Option<(usize, &StoredTensor)> {
        self.tensors.iter().enumerate().find(|(_, tensor)| tensor.torch == name)
    }

    /// Returns the tensor with this name in Keras.
    pub fn by_keras(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.iter().find(|tensor| tensor.keras == name)
    }

    /// Returns true if the order of a tensor depends on the image that was flattened before the layer.
    pub fn depends_on_flatten(&self) -> bool {
        self.tensors.iter().any(|tensor| tensor.order == KerasOrder::Matrix)
    }
}

impl StoredTensor {
    pub const fn parameter(torch: &'static str, keras: &'static str, order: KerasOrder) -> Self {
        Self { torch, keras, order, running: false }
    }

    pub const fn running(torch: &'static str, keras: &'static str) -> Self {
        Self { torch, keras, order: KerasOrder::Vector, running: true }
    }
}
