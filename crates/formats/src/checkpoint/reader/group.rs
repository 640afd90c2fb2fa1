//! Open files and their groups, as the layouts of models and checkpoints ask for them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::super::checksum::Checked;
use super::super::error::Error;
use super::array;
use super::attribute::{Attribute, Number};
use super::fault::Fault;
use super::global_heap::GlobalHeap;
use super::members::{self, Members};
use super::source::Source;
use super::{object, superblock};

/// What all groups of a file share.
struct Shared {
    path: PathBuf,
    source: Source,
    texts: GlobalHeap,
    /// Groups by their addresses: each is parsed once.
    groups: RefCell<BTreeMap<u64, Rc<Members>>>,
}

/// A group of an open file.
pub(in crate::checkpoint) struct Group {
    file: Rc<Shared>,
    /// Its path in the file.
    name: String,
    members: Rc<Members>,
}

/// Names in a path at most; those of trireme have two.
const MOST_NAMES: usize = 8;

/// The root group of an HDF5 file; `path` is for messages.
pub(in crate::checkpoint) fn open(checked: Checked, path: &Path) -> Result<Group, Error> {
    let source = Source::new(checked.file, checked.length);
    let shared = Shared { path: path.to_path_buf(), source, texts: GlobalHeap::default(), groups: RefCell::default() };
    let shared = Rc::new(shared);
    let root = superblock::root(&shared.source).map_err(|fault| refusal(&shared.path, "/", fault))?;
    Group::at(shared, root, String::new())
}

fn refusal(path: &Path, object: &str, fault: Fault) -> Error {
    let path = path.to_path_buf();
    match fault {
        Fault::Io(source) => Error::Io { action: "read", path, source },
        Fault::Layout { at, text } => Error::Layout { path, object: object.into(), at, text },
    }
}

impl Group {
    fn at(file: Rc<Shared>, address: u64, name: String) -> Result<Self, Error> {
        let known = file.groups.borrow().get(&address).cloned();
        let read = || {
            let messages = object::messages(&file.source, address)?;
            Ok(Rc::new(members::read(&file.source, address, &messages)?))
        };
        let members = known.map_or_else(read, Ok).map_err(|fault| refusal(&file.path, &format!("{name}/"), fault))?;
        file.groups.borrow_mut().insert(address, Rc::clone(&members));
        Ok(Self { file, name, members })
    }

    /// The group of this name inside; the name may be a path.
    pub(in crate::checkpoint) fn open(&self, path: &str) -> Result<Self, Error> {
        let (file, members) = (Rc::clone(&self.file), Rc::clone(&self.members));
        let mut group = Self { file, name: self.name.clone(), members };
        if path.split('/').count() > MOST_NAMES {
            return Err(self.content(format!("a path of more than {MOST_NAMES} names at {}/", self.name)));
        }
        for name in path.split('/') {
            group = Self::at(Rc::clone(&self.file), group.link(name)?, format!("{}/{name}", group.name))?;
        }
        Ok(group)
    }

    /// Whether something of that name is inside.
    pub(in crate::checkpoint) fn has(&self, name: &str) -> bool {
        self.members.links.contains_key(name)
    }

    /// Shape and values of an array; `name` may be a path.
    pub(in crate::checkpoint) fn array(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), Error> {
        if let Some((folder, name)) = name.rsplit_once('/') {
            return self.open(folder)?.array(name);
        }
        let address = self.link(name)?;
        array::read(&self.file.source, address).map_err(|fault| self.refusal(name, fault))
    }

    /// A text attribute.
    pub(in crate::checkpoint) fn text(&self, name: &str) -> Result<String, Error> {
        self.attribute(name, |attribute| attribute.text(&self.file.source, &self.file.texts))
    }

    /// A list of texts.
    pub(in crate::checkpoint) fn texts(&self, name: &str) -> Result<Vec<String>, Error> {
        self.attribute(name, |attribute| attribute.texts(&self.file.source, &self.file.texts))
    }

    /// A number.
    pub(in crate::checkpoint) fn number<T: Number>(&self, name: &str) -> Result<T, Error> {
        self.attribute(name, Attribute::number)
    }

    /// A list of numbers.
    pub(in crate::checkpoint) fn numbers<T: Number>(&self, name: &str) -> Result<Vec<T>, Error> {
        self.attribute(name, Attribute::numbers)
    }

    /// Names of all attributes.
    pub(in crate::checkpoint) fn attribute_names(&self) -> impl Iterator<Item = &str> {
        self.members.attributes.keys().map(String::as_str)
    }

    fn attribute<T>(&self, name: &str, read: impl FnOnce(&Attribute) -> Result<T, Fault>) -> Result<T, Error> {
        let missing = || self.content(format!("no attribute {name} at {}/", self.name));
        let attribute = self.members.attributes.get(name).ok_or_else(missing)?;
        read(attribute).map_err(|fault| self.refusal(name, fault))
    }

    fn link(&self, name: &str) -> Result<u64, Error> {
        let found = self.members.links.get(name).copied();
        found.ok_or_else(|| self.content(format!("nothing at {}/{name}", self.name)))
    }

    fn content(&self, text: String) -> Error {
        Error::Content { path: self.file.path.clone(), text }
    }

    fn refusal(&self, name: &str, fault: Fault) -> Error {
        refusal(&self.file.path, &format!("{}/{name}", self.name), fault)
    }
}
