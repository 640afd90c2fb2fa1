//! The values of a pickle. Containers are stored in vectors, and a value refers to a container by its index. So values
//! can be copied, may contain each other in cycles, and are dropped without recursion.

use crate::interop::number::Number;
use crate::interop::weights::{Fault, damaged};

/// The meaning of a class or function that a pickle names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class {
    Dictionary,
    /// A function that makes a tensor from a storage, an offset, sizes and strides.
    Tensor,
    /// A function that returns the tensor in its first argument.
    Parameter,
    /// A type of storage.
    Storage(Number),
}

/// A value, or the index of a container in [`Values`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    None,
    Bool,
    Int(i64),
    /// An integer that does not fit into 64 bits, such as a seed. No supported object needs its value.
    Long,
    Float,
    Text(usize),
    /// A list or a tuple.
    List(usize),
    Dictionary(usize),
    Class(Class),
    Storage(usize),
    Tensor(usize),
}

impl Value {
    /// Describes the value for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool => "a bool",
            Self::Int(_) | Self::Long | Self::Float => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list or a tuple",
            Self::Dictionary(_) => "a dictionary",
            Self::Class(_) => "a class",
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor without a name",
        }
    }
}

/// A contiguous buffer of values in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    pub number: Number,
    /// Name of the storage in the file.
    pub key: String,
    pub len: u64,
}

/// A strided view of a storage.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub storage: usize,
    /// Index of the view's first value in the storage.
    pub offset: u64,
    pub size: Vec<u64>,
    /// Distance between neighbours in each dimension, in values.
    pub stride: Vec<u64>,
}

/// Limit for the number of copied items. A short operation could otherwise copy a long list again and again.
const MOST_COPIES: usize = 16 << 20;

/// Everything that a pickle has created.
#[derive(Debug, Default)]
pub struct Values {
    /// Number of copied list items and string bytes.
    pub copied: usize,
    pub texts: Vec<String>,
    pub lists: Vec<Vec<Value>>,
    pub dictionaries: Vec<Vec<(Value, Value)>>,
    pub storages: Vec<Storage>,
    pub views: Vec<View>,
}

/// Appends an item and returns its index.
pub fn keep<T>(items: &mut Vec<T>, item: T) -> usize {
    items.push(item);
    items.len() - 1
}

impl Values {
    /// Returns the number of lists, dictionaries, strings and tensors.
    pub fn containers(&self) -> usize {
        let Self { copied: _, texts, lists, dictionaries, storages, views } = self;
        texts.len() + lists.len() + dictionaries.len() + storages.len() + views.len()
    }

    /// Counts copied items. Fails if the pickle copies too many.
    pub fn charge(&mut self, items: usize) -> Result<(), Fault> {
        self.copied = self.copied.saturating_add(items);
        if self.copied <= MOST_COPIES {
            return Ok(());
        }
        damaged(format!("its pickle copies more than {MOST_COPIES} items"))
    }

    pub fn text(&self, value: Value) -> Result<&str, Fault> {
        match value {
            Value::Text(at) => Ok(&self.texts[at]),
            other => damaged(format!("expected a string in its pickle, got {}", other.words())),
        }
    }

    pub fn list(&self, value: Value) -> Result<&[Value], Fault> {
        match value {
            Value::List(at) => Ok(&self.lists[at]),
            other => damaged(format!("expected a list or tuple in its pickle, got {}", other.words())),
        }
    }

    /// Returns the non-negative numbers of a list.
    pub fn counts(&self, value: Value) -> Result<Vec<u64>, Fault> {
        self.list(value)?.iter().map(|item| count(*item)).collect()
    }

    /// Creates a dictionary from the arguments of its class: no argument, or a list of pairs.
    pub fn dictionary(&mut self, arguments: &[Value]) -> Result<Value, Fault> {
        let mut pairs = Vec::new();
        if let [list] = arguments {
            self.charge(self.list(*list)?.len())?;
            for pair in self.list(*list)? {
                match self.list(*pair)? {
                    [key, value] => pairs.push((*key, *value)),
                    other => {
                        return damaged(format!(
                            "expected pairs of key and value in a dictionary of its pickle, got {} items",
                            other.len()
                        ));
                    }
                }
            }
        }
        Ok(Value::Dictionary(keep(&mut self.dictionaries, pairs)))
    }

    /// Creates a storage from its persistent id: the string "storage", class, key, device, number of values, and
    /// optionally a view.
    pub fn storage(&mut self, id: Value) -> Result<Value, Fault> {
        let (what, class, key, len, more) = match *self.list(id)? {
            [what, class, key, _, len] => (what, class, key, len, Value::None),
            [what, class, key, _, len, more] => (what, class, key, len, more),
            ref other => {
                return damaged(format!("expected a storage id with 5 or 6 parts in its pickle, got {}", other.len()));
            }
        };
        let Value::Class(Class::Storage(number)) = class else {
            return damaged(format!("expected the type of a storage in its pickle, got {}", class.words()));
        };
        if self.text(what)? != "storage" || more != Value::None {
            return Err(Fault::Unsupported(
                "it has a storage that is a part of another storage. Save the state_dict again with a newer PyTorch"
                    .into(),
            ));
        }
        self.charge(self.text(key)?.len())?;
        let storage = Storage { number, key: self.text(key)?.to_string(), len: count(len)? };
        Ok(Value::Storage(keep(&mut self.storages, storage)))
    }

    /// If `key` is a mark that changes the values of a view (`neg` or `conj`), returns its name.
    fn mark(&self, key: Value) -> Option<&str> {
        let Value::Text(_) = key else { return None };
        self.text(key).ok().filter(|text| ["neg", "conj"].contains(text))
    }

    /// Creates a tensor from the arguments of its rebuild function: storage, offset, sizes, strides and more. Of the
    /// further arguments, only the last one matters: a dictionary with marks that change the values.
    pub fn tensor(&mut self, arguments: &[Value]) -> Result<Value, Fault> {
        let [Value::Storage(storage), offset, size, stride, ..] = *arguments else {
            return damaged("its pickle has a tensor without storage, offset, sizes and strides");
        };
        let marks = arguments.get(6).and_then(|marks| match marks {
            Value::Dictionary(number) => Some(*number),
            _ => None,
        });
        // many tensors may share one dictionary, and each of them searches it
        self.charge(marks.map_or(0, |number| self.dictionaries[number].len()))?;
        if let Some(mark) =
            marks.and_then(|number| self.dictionaries[number].iter().find_map(|(key, _)| self.mark(*key)))
        {
            return Err(Fault::Unsupported(format!(
                "it has a tensor with PyTorch's {mark} bit set, so its values differ from the stored ones. Save the state_dict with \
                 tensor.resolve_neg().resolve_conj() for each tensor"
            )));
        }
        self.charge(self.list(size)?.len().saturating_add(self.list(stride)?.len()))?;
        let view = View { storage, offset: count(offset)?, size: self.counts(size)?, stride: self.counts(stride)? };
        Ok(Value::Tensor(keep(&mut self.views, view)))
    }
}

fn count(value: Value) -> Result<u64, Fault> {
    match value {
        Value::Int(number) if number >= 0 => Ok(number as u64),
        Value::Int(number) => damaged(format!("expected a number of at least 0 in its pickle, got {number}")),
        other => damaged(format!("expected a number of at least 0 in its pickle, got {}", other.words())),
    }
}
