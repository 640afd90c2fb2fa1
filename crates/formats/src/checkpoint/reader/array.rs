//! Arrays of f32 in one piece. Chunks, filters and values in other files are refused.

use super::cursor::Cursor;
use super::dataspace;
use super::datatype::{self, Datatype};
use super::fault::{Fault, expect};
use super::object::{self, Message, kind};
use super::source::Source;

/// Shape and values of the array at `address`.
pub(super) fn read(source: &Source, address: u64) -> Result<(Vec<usize>, Vec<f32>), Fault> {
    let messages = object::messages(source, address)?;
    messages.iter().try_for_each(known)?;
    let one = |kind, what| {
        let mut found = messages.iter().filter(|message| message.kind == kind).map(Message::cursor);
        let first = found.next().filter(|_| found.next().is_none());
        first.ok_or_else(|| Fault::layout(address, format!("an array without exactly one {what}")))
    };
    let space = one(kind::DATASPACE, "shape")?;
    let shape =
        dataspace::parse(space)?.ok_or_else(|| Fault::layout(space.at(), "a single value in place of an array"))?;
    expect(!shape.contains(&0), space.at(), || format!("an array without values, of shape {shape:?}"))?;
    let datatype = one(kind::DATATYPE, "type of values")?;
    let found = datatype::parse(datatype.at(), datatype.rest())?;
    expect(found == Datatype::F32, datatype.at(), || format!("expected an array of F32, got {found:?}"))?;
    let mut layout = one(kind::LAYOUT, "place")?;
    in_one_piece(&mut layout)?;
    let (at, values, bytes) = (layout.at(), layout.present("the array's values")?, layout.uint(8)?);
    let count = dataspace::values(&shape, space.at())?;
    expect(count.checked_mul(4) == Some(bytes), at, || format!("an array of shape {shape:?} has {bytes} bytes"))?;
    let count = usize::try_from(count).map_err(|_| Fault::layout(at, format!("an array of {count} values")))?;
    Ok((shape, source.floats(values, count)?))
}

/// Leaves the cursor at the address of values that lie in one piece.
fn in_one_piece(layout: &mut Cursor<'_>) -> Result<(), Fault> {
    layout.exactly(3, 1, "version of an array's place")?;
    let (at, class) = (layout.at(), layout.u8()?);
    let name = match class {
        0 => "within its header",
        1 => "in one piece",
        2 => "in chunks",
        3 => "in other data sets (virtual storage)",
        _ => "in an unknown way",
    };
    expect(class == 1, at, || format!("expected values in one piece, they are stored {name}"))
}

/// Refuses what changes the values or where they are.
fn known(message: &Message) -> Result<(), Fault> {
    let text = match message.kind {
        kind::DATASPACE | kind::DATATYPE | kind::LAYOUT | kind::ATTRIBUTE | kind::ATTRIBUTE_INFO => return Ok(()),
        kind::EXTERNAL => "its values are in another file (external storage), which trireme never reads".into(),
        kind::FILTERS => "its values are compressed or filtered".into(),
        kind::LINK_INFO | kind::LINK | kind::SYMBOL_TABLE => "expected an array, got a group".into(),
        other => format!("an array with a message of the unknown kind {other}"),
    };
    Err(Fault::layout(message.cursor().at(), text))
}
