//! Open files, their groups, and the members of a group: links to other groups, arrays and attributes.
//!
//! A group header holds up to eight links and up to eight attributes. If there are more, they are stored in a heap.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::text::plural;

use super::super::checksum::CheckedFile;
use super::super::error::Error;
use super::heap::{self, GlobalHeap, Heap, TreeType};
use super::object::{self, Datatype, Message, Shape, kind};
use super::source::{Cursor, Fault, Source, expect};

/// State shared by all groups of a file.
struct Shared {
    path: PathBuf,
    source: Source,
    texts: GlobalHeap,
    /// Groups by address, so that each is parsed only once.
    groups: RefCell<BTreeMap<u64, Rc<Members>>>,
}

pub(in crate::checkpoint) struct Group {
    file: Rc<Shared>,
    /// Path in the file without a slash at its end, empty for the root group.
    name: String,
    members: Rc<Members>,
}

/// Maximum number of names in a path. Paths written by trireme have two.
const MAX_PATH_NAMES: usize = 8;

/// Opens the root group of an HDF5 file. `path` is only for messages.
pub(in crate::checkpoint) fn open(checked: CheckedFile, path: &Path) -> Result<Group, Error> {
    let source = Source::new(checked.file, checked.length);
    let shared = Shared { path: path.to_path_buf(), source, texts: GlobalHeap::default(), groups: RefCell::default() };
    let shared = Rc::new(shared);
    let root = object::root(&shared.source).map_err(|fault| refusal(&shared.path, "/", fault))?;
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
            Ok(Rc::new(read_members(&file.source, address, &messages)?))
        };
        let members = known.map_or_else(read, Ok).map_err(|fault| refusal(&file.path, &format!("{name}/"), fault))?;
        file.groups.borrow_mut().insert(address, Rc::clone(&members));
        Ok(Self { file, name, members })
    }

    /// Opens a group below this one. `path` may have more than one name.
    pub(in crate::checkpoint) fn open(&self, path: &str) -> Result<Self, Error> {
        let (file, members) = (Rc::clone(&self.file), Rc::clone(&self.members));
        let mut group = Self { file, name: self.name.clone(), members };
        if path.split('/').count() > MAX_PATH_NAMES {
            return Err(self.content(format!("a path with more than {MAX_PATH_NAMES} names at {}/", self.name)));
        }
        for name in path.split('/') {
            group = Self::at(Rc::clone(&self.file), group.link(name)?, format!("{}/{name}", group.name))?;
        }
        Ok(group)
    }

    /// Returns true if the group contains a group or array with this name.
    pub(in crate::checkpoint) fn has(&self, name: &str) -> bool {
        self.members.links.contains_key(name)
    }

    /// Reads the shape and values of an array. `name` may be a path.
    pub(in crate::checkpoint) fn array(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), Error> {
        if let Some((folder, name)) = name.rsplit_once('/') {
            return self.open(folder)?.array(name);
        }
        let address = self.link(name)?;
        read_array(&self.file.source, address).map_err(|fault| self.refusal(name, fault))
    }

    pub(in crate::checkpoint) fn text(&self, name: &str) -> Result<String, Error> {
        self.attribute(name, |attribute| attribute.text(&self.file.source, &self.file.texts))
    }

    pub(in crate::checkpoint) fn texts(&self, name: &str) -> Result<Vec<String>, Error> {
        self.attribute(name, |attribute| attribute.texts(&self.file.source, &self.file.texts))
    }

    pub(in crate::checkpoint) fn number<T: Number>(&self, name: &str) -> Result<T, Error> {
        self.attribute(name, Attribute::number)
    }

    pub(in crate::checkpoint) fn numbers<T: Number>(&self, name: &str) -> Result<Vec<T>, Error> {
        self.attribute(name, Attribute::numbers)
    }

    /// Reads the attribute `name` with `read`, such as [`Group::text`]. Returns `None` if the group does not have it.
    pub(in crate::checkpoint) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Self, &str) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.has_attribute(name) { read(self, name).map(Some) } else { Ok(None) }
    }

    pub(in crate::checkpoint) fn has_attribute(&self, name: &str) -> bool {
        self.members.attributes.contains_key(name)
    }

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

/// The format of a B-tree that lists the members in a heap.
struct MemberIndex {
    kind: TreeType,
    /// Bytes of a record before the member's id.
    before_id: u64,
    /// Length of the member's id in bytes.
    id: u64,
}

/// Links indexed by name. A record is a hash followed by the id.
const LINKS: MemberIndex = MemberIndex { kind: TreeType { number: 5, record: 11 }, before_id: 4, id: 7 };

/// Attributes indexed by name. A record is the id, followed by flags, creation order and a hash.
const ATTRIBUTES: MemberIndex = MemberIndex { kind: TreeType { number: 8, record: 17 }, before_id: 0, id: 8 };

pub(super) struct Members {
    /// Addresses of groups and arrays.
    pub(super) links: BTreeMap<String, u64>,
    pub(super) attributes: BTreeMap<String, Attribute>,
}

/// Reads the members of the group at `address` from its messages.
pub(super) fn read_members(source: &Source, address: u64, messages: &[Message]) -> Result<Members, Fault> {
    let mut members = Members { links: BTreeMap::new(), attributes: BTreeMap::new() };
    let is_group = messages.iter().any(|message| message.kind == kind::LINK_INFO);
    let old = messages.iter().any(|message| message.kind == kind::SYMBOL_TABLE);
    expect(!old, address, || "a group in the layout of HDF5 before 1.8".into())?;
    expect(is_group, address, || "expected a group, got an array".into())?;
    for message in messages {
        let cursor = message.cursor();
        source.count_part(cursor.at())?;
        match message.kind {
            kind::LINK => members.link(cursor)?,
            kind::LINK_INFO => read_heap_members(source, cursor, &LINKS, &mut |cursor| members.link(cursor))?,
            kind::ATTRIBUTE => members.attribute(cursor)?,
            kind::ATTRIBUTE_INFO => {
                read_heap_members(source, cursor, &ATTRIBUTES, &mut |cursor| members.attribute(cursor))?
            }
            other => {
                return Err(Fault::layout(cursor.at(), format!("a group with a message of the unknown kind {other}")));
            }
        }
    }
    Ok(members)
}

impl Members {
    fn link(&mut self, mut cursor: Cursor<'_>) -> Result<(), Fault> {
        let begin = cursor.at();
        cursor.exactly(1, 1, "link version")?;
        let flags = cursor.u8()?;
        // Bit 2: creation order, never written. Bit 3: kind of link, 0 for a hard link. Bit 4: character set of the
        // name.
        expect(flags & !0b1_1011 == 0, begin, || format!("link flags {flags:#x}"))?;
        if flags & 0b1000 != 0 {
            let (at, kind) = (cursor.at(), cursor.u8()?);
            expect(kind == 0, at, || "a link to a name or to another file, which trireme never follows".into())?;
        }
        if flags & 0b1_0000 != 0 {
            cursor.u8()?;
        }
        let length = cursor.uint(1 << (flags & 0b11))?;
        let name = cursor.text(length)?;
        let at = cursor.at();
        let address = cursor.present("the target of a link")?;
        let text = format!("two links {name}");
        expect(self.links.insert(name, address).is_none(), at, || text)
    }

    fn attribute(&mut self, cursor: Cursor<'_>) -> Result<(), Fault> {
        let at = cursor.at();
        let (name, attribute) = parse_attribute(cursor)?;
        let text = format!("two attributes {name}");
        expect(self.attributes.insert(name, attribute).is_none(), at, || text)
    }
}

/// Calls `each` with all members in the heap that an info message refers to. Does nothing if there is no heap.
fn read_heap_members(
    source: &Source,
    mut info: Cursor<'_>,
    list: &MemberIndex,
    each: &mut dyn FnMut(Cursor<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    info.exactly(0, 1, "member list version")?;
    // Nonzero flags announce an index by creation order, which trireme never writes.
    info.exactly(0, 1, "member list flags")?;
    let (heap, tree) = (info.address()?, info.address()?);
    let Some((heap, tree)) = heap.zip(tree) else { return Ok(()) };
    let heap = Heap::open(source, heap, list.id)?;
    for record in heap::records(source, tree, list.kind)?.chunks_exact(list.kind.record as usize) {
        source.count_part(tree)?;
        let mut record = Cursor::new(tree, record);
        record.take(list.before_id)?;
        each(heap.object(record.take(list.id)?)?.cursor())?;
    }
    Ok(())
}

/// An attribute whose value is decoded on demand.
pub(super) struct Attribute {
    /// Offset of the attribute in the file.
    pub(super) at: u64,
    datatype: Datatype,
    shape: Shape,
    bytes: Vec<u8>,
}

pub(in crate::checkpoint) trait Number: Sized {
    /// The type in the file that corresponds to this Rust type.
    const DATATYPE: Datatype;

    /// Converts the bytes of a number.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty => $datatype:ident),*) => {
        $(impl Number for $number {
            const DATATYPE: Datatype = Datatype::$datatype;

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self::from_le_bytes)
            }
        })*
    };
}

numbers!(f32 => F32, f64 => F64, u32 => U32, u64 => U64);

/// Parses an attribute and its name.
pub(super) fn parse_attribute(mut cursor: Cursor<'_>) -> Result<(String, Attribute), Fault> {
    let at = cursor.at();
    cursor.exactly(3, 1, "attribute version")?;
    cursor.exactly(0, 1, "attribute flags")?;
    let (name, datatype, space) = (cursor.uint(2)?, cursor.uint(2)?, cursor.uint(2)?);
    // The character set of the name. All names are read as UTF-8.
    cursor.u8()?;
    let name = cursor.text(name.saturating_sub(1))?;
    cursor.exactly(0, 1, "end of an attribute's name")?;
    let datatype = object::parse_datatype(cursor.at(), cursor.take(datatype)?)?;
    let shape = object::parse_shape(Cursor::new(cursor.at(), cursor.take(space)?))?;
    let values = shape.as_ref().map_or(Ok(1), |shape| object::element_count(shape, at))?;
    let (bytes, have) = (values.checked_mul(datatype.bytes()), cursor.rest().len());
    expect(bytes.is_some_and(|bytes| bytes <= have as u64), at, || {
        format!("attribute {name} with {values} values has {have} bytes")
    })?;
    let bytes = cursor.take(bytes.unwrap_or(0))?.to_vec();
    Ok((name, Attribute { at, datatype, shape, bytes }))
}

impl Attribute {
    pub(super) fn number<T: Number>(&self) -> Result<T, Fault> {
        let bytes = self.checked(T::DATATYPE, 0)?;
        T::from_bytes(bytes).ok_or_else(|| Fault::layout(self.at, "a number with the wrong length"))
    }

    pub(super) fn numbers<T: Number>(&self) -> Result<Vec<T>, Fault> {
        let bytes = self.checked(T::DATATYPE, 1)?;
        let list: Option<_> = bytes.chunks_exact(T::DATATYPE.bytes() as usize).map(T::from_bytes).collect();
        list.ok_or_else(|| Fault::layout(self.at, "numbers with the wrong length"))
    }

    pub(super) fn text(&self, source: &Source, heap: &GlobalHeap) -> Result<String, Fault> {
        heap.text(source, &mut Cursor::new(self.at, self.checked(Datatype::Text, 0)?))
    }

    pub(super) fn texts(&self, source: &Source, heap: &GlobalHeap) -> Result<Vec<String>, Fault> {
        let bytes = self.checked(Datatype::Text, 1)?;
        let each = bytes.chunks_exact(Datatype::Text.bytes() as usize);
        each.map(|reference| heap.text(source, &mut Cursor::new(self.at, reference))).collect()
    }

    /// Returns the bytes of the value, if it has this type and number of dimensions.
    fn checked(&self, datatype: Datatype, dimensions: usize) -> Result<&[u8], Fault> {
        let have = self.shape.as_ref().map_or(0, Vec::len);
        expect((self.datatype, have) == (datatype, dimensions), self.at, || {
            let (expected, got) = (datatype.name(), self.datatype.name());
            format!("expected {expected} in {}, got {got} in {have}", plural(dimensions, "dimension"))
        })?;
        Ok(&self.bytes)
    }
}

/// Reads the shape and values of the array at `address`.
pub(super) fn read_array(source: &Source, address: u64) -> Result<(Vec<usize>, Vec<f32>), Fault> {
    let messages = object::messages(source, address)?;
    messages.iter().try_for_each(check_message)?;
    let one = |kind, what| {
        let mut found = messages.iter().filter(|message| message.kind == kind).map(Message::cursor);
        let first = found.next();
        let count = usize::from(first.is_some()) + found.count();
        let why = || Fault::layout(address, format!("an array must have exactly one {what}, found {count}"));
        first.filter(|_| count == 1).ok_or_else(why)
    };
    let space = one(kind::DATASPACE, "shape")?;
    let shape = object::parse_shape(space)?
        .ok_or_else(|| Fault::layout(space.at(), "expected an array, got a single value"))?;
    expect(!shape.contains(&0), space.at(), || format!("an array without values, of shape {shape:?}"))?;
    let datatype = one(kind::DATATYPE, "type of values")?;
    let found = object::parse_datatype(datatype.at(), datatype.rest())?;
    expect(found == Datatype::F32, datatype.at(), || format!("expected an array of F32, got {}", found.name()))?;
    let mut layout = one(kind::LAYOUT, "storage layout")?;
    check_contiguous(&mut layout)?;
    let (at, values, bytes) = (layout.at(), layout.present("the array's values")?, layout.uint(8)?);
    let count = object::element_count(&shape, space.at())?;
    expect(count.checked_mul(4) == Some(bytes), at, || format!("an array of shape {shape:?} has {bytes} bytes"))?;
    let count = usize::try_from(count).map_err(|_| Fault::layout(at, format!("an array of {count} values")))?;
    Ok((shape, source.floats(values, count)?))
}

/// Checks that the values are stored contiguously, and leaves the cursor at their address.
fn check_contiguous(layout: &mut Cursor<'_>) -> Result<(), Fault> {
    layout.exactly(3, 1, "array layout version")?;
    let (at, class) = (layout.at(), layout.u8()?);
    let name = match class {
        0 => "compact",
        1 => "contiguous",
        2 => "chunked",
        3 => "virtual",
        _ => "unknown",
    };
    expect(class == 1, at, || format!("expected contiguous storage, got {name} storage"))
}

/// Rejects messages that would change the values or their place.
fn check_message(message: &Message) -> Result<(), Fault> {
    let text = match message.kind {
        kind::DATASPACE | kind::DATATYPE | kind::LAYOUT | kind::ATTRIBUTE | kind::ATTRIBUTE_INFO => return Ok(()),
        kind::EXTERNAL => "its values are in another file (external storage), which trireme never reads".into(),
        kind::FILTERS => "its values are compressed or filtered".into(),
        kind::LINK_INFO | kind::LINK | kind::SYMBOL_TABLE => "expected an array, got a group".into(),
        other => format!("an array with a message of the unknown kind {other}"),
    };
    Err(Fault::layout(message.cursor().at(), text))
}
