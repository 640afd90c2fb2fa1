//! A JSON file of labels: one object, for each image by its name the list of its classes.

use super::labelled::Line;
use super::labels::Label;
use crate::error::Error;
use crate::text;
use loaders::regular;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::path::Path;

/// The members of the object, in their order and with doubles; values as they stand in the text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a list of classes for each image, as {\"a.jpg\": [\"cat\", \"dog\"], \"b.jpg\": []}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        source.deserialize_map(Object)
    }
}

/// Reads the file at `path`: an image may have any number of labels. What is no list of labels is a fault of its line.
///
/// # Errors
/// A file that cannot be read, or is no such object.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>, Error> {
    let text = regular::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let text = text::without_mark(&text);
    let Members(members) = serde_json::from_str(text).map_err(|e| Error::input(path, e.to_string()))?;
    let (mut number, mut at) = (1, 0);
    let line = |(name, value): (String, &RawValue)| {
        // values are parts of the text, one behind the other
        let here = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
        number += text.as_bytes()[at.min(here)..here].iter().filter(|byte| **byte == b'\n').count() as u64;
        at = here;
        let labels = labels(value.get());
        let fault = labels.as_ref().err().cloned();
        Line { number, path: name, labels: labels.unwrap_or_default(), split: String::new(), fault }
    };
    Ok(members.into_iter().map(line).collect())
}

/// The labels that a value lists.
fn labels(text: &str) -> Result<Vec<Label>, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let list = match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    let label = |value: &Value| {
        Label::of_json(value)
            .ok_or_else(|| format!("{value}: expected a list of class names, as [\"cat\", \"dog\"], or of numbers"))
    };
    list.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<Line>, String> {
        let path = std::env::temp_dir().join(format!("trireme-labels-{}-{}.json", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let lines = read(&path).map_err(|e| e.to_string());
        std::fs::remove_file(&path).unwrap();
        lines
    }

    #[test]
    fn members_have_their_lines() {
        let text = "{\"a.jpg\": [\"cat\", 2],\n\n \"b.jpg\":\n[],\n\"a.jpg\": \"dog\",\n\"c.jpg\": [true]}";
        let lines = of(text).unwrap();
        let name = |text: &str| Label::Name(text.into());
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 4, 5, 6]);
        assert_eq!((lines[0].path.as_str(), &lines[0].labels), ("a.jpg", &vec![name("cat"), Label::Number(2)]));
        assert_eq!((lines[1].labels.len(), lines[1].fault.is_none()), (0, true));
        assert_eq!(lines[2].labels, [name("dog")]);
        assert!(lines[3].fault.as_ref().unwrap().contains("true: expected a list of class names"));
        assert_eq!(of("{}").unwrap(), []);
        let lines = of("\u{feff}{\n\"a.jpg\": \"dog\"}").unwrap();
        assert_eq!((lines[0].number, lines[0].labels.as_slice()), (2, [name("dog")].as_slice()));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(of("[1, 2]").unwrap_err().contains("expected an object with a list of classes for each image"));
        assert!(of("{\"a\": [}").unwrap_err().contains("line 1"));
    }
}
