//! The values of a pickle. Containers lie side by side and are named by their numbers: values are copied freely, may contain each other in
//! circles, and are dropped without recursion.

use crate::interop::number::Number;
use crate::interop::weights::{Fault, damaged};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class {
    /// A dictionary.
    Dictionary,
    /// A tensor from storage, offset, sizes and strides.
    Tensor,
    /// The tensor that is its first argument.
    Parameter,
    /// The type of a storage's values.
    Storage(Number),
}

/// A value, or the number of one of [`Values`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    None,
    Bool,
    Int(i64),
    /// An integer of more than 64 bits with its sign, such as a seed: nothing that is read here is one.
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
    /// What it is, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool => "a truth value",
            Self::Int(_) | Self::Long | Self::Float => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list or a tuple",
            Self::Dictionary(_) => "a dictionary",
            Self::Class(_) => "a class",
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor without a name",
        }
    }
}

/// A run of values in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    pub number: Number,
    /// Its name in the file.
    pub key: String,
    /// Values.
    pub len: u64,
}

/// A view of a storage.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub storage: usize,
    /// First value.
    pub offset: u64,
    pub size: Vec<u64>,
    /// In values.
    pub stride: Vec<u64>,
}

/// Copies of items that a pickle may ask for: an operation is short, and could copy a long list again and again.
const MOST_COPIES: usize = 16 << 20;

/// Everything that a pickle has made.
#[derive(Debug, Default)]
pub struct Values {
    /// Items that were copied out of lists and texts.
    pub copied: usize,
    pub texts: Vec<String>,
    pub lists: Vec<Vec<Value>>,
    pub dictionaries: Vec<Vec<(Value, Value)>>,
    pub storages: Vec<Storage>,
    pub views: Vec<View>,
}

/// Appends an item and gives its number.
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

    /// Refuses a pickle that copies too much.
    pub fn charge(&mut self, items: usize) -> Result<(), Fault> {
        self.copied = self.copied.saturating_add(items);
        if self.copied <= MOST_COPIES {
            return Ok(());
        }
        damaged(format!("its pickle copies more than {MOST_COPIES} items"))
    }

    /// The text of a value.
    pub fn text(&self, value: Value) -> Result<&str, Fault> {
        match value {
            Value::Text(at) => Ok(&self.texts[at]),
            other => damaged(format!("expected a text in its pickle, got {other:?}")),
        }
    }

    /// The items of a list or tuple.
    pub fn list(&self, value: Value) -> Result<&[Value], Fault> {
        match value {
            Value::List(at) => Ok(&self.lists[at]),
            other => damaged(format!("expected a list or tuple in its pickle, got {other:?}")),
        }
    }

    /// The numbers of a list, none negative.
    pub fn counts(&self, value: Value) -> Result<Vec<u64>, Fault> {
        self.list(value)?.iter().map(|item| count(*item)).collect()
    }

    /// A dictionary out of the arguments of its class: none, or a list of pairs.
    pub fn dictionary(&mut self, arguments: &[Value]) -> Result<Value, Fault> {
        let mut pairs = Vec::new();
        if let [list] = arguments {
            self.charge(self.list(*list)?.len())?;
            for pair in self.list(*list)? {
                match self.list(*pair)? {
                    [key, value] => pairs.push((*key, *value)),
                    other => {
                        return damaged(format!(
                            "expected pairs in a dictionary of its pickle, got {} items",
                            other.len()
                        ));
                    }
                }
            }
        }
        Ok(Value::Dictionary(keep(&mut self.dictionaries, pairs)))
    }

    /// A storage out of its persistent id: "storage", class, key, device, number of values, and perhaps a view of it.
    pub fn storage(&mut self, id: Value) -> Result<Value, Fault> {
        let (what, class, key, len, more) = match *self.list(id)? {
            [what, class, key, _, len] => (what, class, key, len, Value::None),
            [what, class, key, _, len, more] => (what, class, key, len, more),
            ref other => {
                return damaged(format!("expected five parts of a storage in its pickle, got {}", other.len()));
            }
        };
        let Value::Class(Class::Storage(number)) = class else {
            return damaged(format!("expected the type of a storage in its pickle, got {class:?}"));
        };
        if self.text(what)? != "storage" || more != Value::None {
            return Err(Fault::Unsupported(
                "a storage that is a part of another one; save the state_dict again with a newer PyTorch".into(),
            ));
        }
        self.charge(self.text(key)?.len())?;
        let storage = Storage { number, key: self.text(key)?.to_string(), len: count(len)? };
        Ok(Value::Storage(keep(&mut self.storages, storage)))
    }

    /// A mark by which PyTorch changes the values of a view, if it is one.
    fn mark(&self, key: Value) -> Option<&str> {
        let Value::Text(_) = key else { return None };
        self.text(key).ok().filter(|text| ["neg", "conj"].contains(text))
    }

    /// A tensor out of the arguments of its function: storage, offset, sizes, strides, and more, of which only the last matters here: what
    /// its values are beside those of the storage.
    pub fn tensor(&mut self, arguments: &[Value]) -> Result<Value, Fault> {
        let [Value::Storage(storage), offset, size, stride, ..] = *arguments else {
            return damaged("a tensor of its pickle without storage, offset, sizes and strides");
        };
        let marks = arguments.get(6).and_then(|marks| match marks {
            Value::Dictionary(number) => Some(*number),
            _ => None,
        });
        // many tensors may share one dictionary, and each looks through it
        self.charge(marks.map_or(0, |number| self.dictionaries[number].len()))?;
        if let Some(mark) =
            marks.and_then(|number| self.dictionaries[number].iter().find_map(|(key, _)| self.mark(*key)))
        {
            return Err(Fault::Unsupported(format!(
                "it has a tensor with PyTorch's mark \"{mark}\", whose values are other ones than the file holds; save the state_dict with \
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
        other => damaged(format!("expected a number of at least 0 in its pickle, got {other:?}")),
    }
}
