//! A JSON file of labels: one object, for each image by its name the list of its classes.

use super::labels::Label;
use super::lines::{Content, Lines, MAX_FIELD};
use crate::error::Error;
use crate::text;
use loaders::{Limits, regular};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::path::Path;

/// Adds each member of an object to the lines, doubles included.
struct Members<'a> {
    text: &'a str,
    lines: &'a mut Lines,
    /// What goes wrong with the lines: the error of a JSON parser is only a text.
    failed: &'a mut Option<Error>,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an object with a list of classes for each image, as {\"a.jpg\": [\"cat\", \"dog\"], \"b.jpg\": []}",
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Members { text, lines, failed } = self;
        let (mut number, mut at) = (1, 0);
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            // values are parts of the text, one behind the other
            let here = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
            number += text.as_bytes()[at.min(here)..here].iter().filter(|byte| **byte == b'\n').count() as u64;
            at = here;
            let labels = labels(value.get());
            let fault = labels.as_ref().err().cloned();
            let labels = labels.unwrap_or_default();
            if let Err(error) = lines.push(Content { number, path: &name, labels, split: "", fault }) {
                let message = error.to_string();
                *failed = Some(error);
                return Err(serde::de::Error::custom(message));
            }
        }
        Ok(())
    }
}

/// Reads the file at `path`: an image may have any number of labels. What is no list of labels is a fault of its line.
///
/// # Errors
/// A file that cannot be read, is no such object, or takes more memory than the limits allow.
pub(crate) fn read(path: &Path, limits: Limits) -> Result<Lines, Error> {
    let text = regular::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let text = text::without_mark(&text);
    let (mut lines, mut failed) = (Lines::new(path, text.len(), limits), None);
    let mut parser = serde_json::Deserializer::from_str(text);
    let members = Members { text, lines: &mut lines, failed: &mut failed };
    match members.deserialize(&mut parser).and_then(|()| parser.end()) {
        Ok(()) => Ok(lines),
        Err(e) => Err(failed.unwrap_or_else(|| Error::input(path, e.to_string()))),
    }
}

/// The labels that a value lists.
fn labels(text: &str) -> Result<Vec<Label>, String> {
    if text.len() > MAX_FIELD {
        return Err(format!("a list of {} bytes; expected at most {MAX_FIELD}", text.len()));
    }
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
    use crate::kinds::reader::lines::Line;

    /// Number, image, labels and fault of a line.
    type Row = (u64, String, Vec<Label>, Option<String>);

    fn of(text: &str) -> Result<Vec<Row>, String> {
        let path = std::env::temp_dir().join(format!("trireme-labels-{}-{}.json", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let lines = read(&path, Limits::DEFAULT).map_err(|e| e.to_string());
        std::fs::remove_file(&path).unwrap();
        let lines = lines?;
        let content = |line: &Line| {
            let fault = lines.line_fault(line).map(str::to_string);
            (line.number, lines.path(line).to_string(), lines.labels(line).to_vec(), fault)
        };
        Ok(lines.all().iter().map(content).collect())
    }

    #[test]
    fn members_have_their_lines() {
        let text = "{\"a.jpg\": [\"cat\", 2],\n\n \"b.jpg\":\n[],\n\"a.jpg\": \"dog\",\n\"c.jpg\": [true]}";
        let lines = of(text).unwrap();
        let name = |text: &str| Label::Name(text.into());
        let numbers: Vec<u64> = lines.iter().map(|line| line.0).collect();
        assert_eq!(numbers, [1, 4, 5, 6]);
        assert_eq!((lines[0].1.as_str(), &lines[0].2), ("a.jpg", &vec![name("cat"), Label::Number(2)]));
        assert_eq!((lines[1].2.len(), lines[1].3.is_none()), (0, true));
        assert_eq!(lines[2].2, [name("dog")]);
        assert!(lines[3].3.as_ref().unwrap().contains("true: expected a list of class names"));
        assert_eq!(of("{}").unwrap(), []);
        let lines = of("\u{feff}{\n\"a.jpg\": \"dog\"}").unwrap();
        assert_eq!((lines[0].0, lines[0].2.as_slice()), (2, [name("dog")].as_slice()));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(of("[1, 2]").unwrap_err().contains("expected an object with a list of classes for each image"));
        assert!(of("{\"a\": [}").unwrap_err().contains("line 1"));
    }
}
