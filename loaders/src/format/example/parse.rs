//! Reads a tf.Example without copies or allocation.

use super::floats::{BOX_KEYS, Boxes, Floats, TARGETS, XMAX, XMIN, YMAX, YMIN};
use super::labels::{self, LABEL, Labels, ParsedLabels, TFDS_LABEL};
use super::message::{
    CHANNELS, DTYPE, ENCODED, ENTRY_POINTS, Example, FILENAME, FORMAT, Format, HEIGHT, TEXT, TFDS_IMAGE, WIDTH,
};
use crate::fault::ExampleFault;
use crate::format::protobuf::{Fields, Value};
use crate::spec::Dtype;

/// Parses a payload. Copies and allocates nothing unless there is an error. Lists may be packed or not. Unknown keys
/// and fields are skipped. If a key is repeated, the last one is used.
pub fn parse(payload: &[u8]) -> Result<Example<'_>, ExampleFault> {
    let mut keys = Keys::default();
    let mut example = Fields(payload);
    while let Some((number, value)) = example.next()? {
        if let (1, Value::Bytes(features)) = (number, value) {
            let mut features = Fields(features);
            while let Some((number, value)) = features.next()? {
                if let (1, Value::Bytes(entry)) = (number, value) {
                    keys.read(entry)?;
                }
            }
        }
    }
    keys.finish()
}

/// The values of the known keys that were read so far.
#[derive(Default)]
struct Keys<'a> {
    encoded: Option<&'a [u8]>,
    format: Option<Format>,
    label: Option<ParsedLabels<'a>>,
    height: u32,
    width: u32,
    channels: u32,
    dtype: Dtype,
    text: &'a str,
    filename: &'a str,
    /// Features for the keys of TensorFlow Datasets. They are parsed later, because other programs may use these keys
    /// for something else.
    image: Option<&'a [u8]>,
    tfds_label: Option<&'a [u8]>,
    boxes: Boxes<'a>,
    targets: Floats<'a>,
    entry_points: &'a [u8],
}

impl<'a> Keys<'a> {
    /// Reads an entry of the map.
    fn read(&mut self, entry: &'a [u8]) -> Result<(), ExampleFault> {
        let (key, feature) = labels::key_and_feature(entry)?;
        match std::str::from_utf8(key).unwrap_or("") {
            ENCODED => self.encoded = Some(first_bytes(feature, ENCODED)?),
            FORMAT => {
                let name = first_bytes(feature, FORMAT)?;
                let unknown = || ExampleFault::UnknownFormat(String::from_utf8_lossy(name).into_owned());
                self.format = Some(Format::parse(name).ok_or_else(unknown)?);
            }
            LABEL => self.label = Some(labels::read(feature, LABEL)?),
            HEIGHT => self.height = size(feature, HEIGHT)?,
            WIDTH => self.width = size(feature, WIDTH)?,
            CHANNELS => self.channels = size(feature, CHANNELS)?,
            DTYPE => {
                let name = first_bytes(feature, DTYPE)?;
                let unknown = || ExampleFault::UnknownDtype(String::from_utf8_lossy(name).into_owned());
                self.dtype = Dtype::parse(name).ok_or_else(unknown)?;
            }
            TEXT => self.text = utf8_prefix(first_bytes(feature, TEXT)?),
            FILENAME => self.filename = utf8_prefix(first_bytes(feature, FILENAME)?),
            ENTRY_POINTS => self.entry_points = first_bytes(feature, ENTRY_POINTS)?,
            YMIN | XMIN | YMAX | XMAX => {
                let axis = BOX_KEYS.iter().position(|name| name.as_bytes() == key).unwrap_or(0);
                if let Some(list) = floats(feature, BOX_KEYS[axis])? {
                    self.boxes.0[axis] = list;
                }
            }
            TARGETS => self.targets = floats(feature, TARGETS)?.unwrap_or_default(),
            TFDS_IMAGE => self.image = Some(feature),
            TFDS_LABEL => self.tfds_label = Some(feature),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Example<'a>, ExampleFault> {
        let encoded = match (self.encoded, self.image) {
            (Some(encoded), _) => encoded,
            (None, Some(feature)) => first_bytes(feature, TFDS_IMAGE)?,
            (None, None) => return Err(ExampleFault::Missing(ENCODED)),
        };
        let label = match (self.label, self.tfds_label) {
            (None, Some(feature)) => Some(labels::read(feature, TFDS_LABEL)?),
            (label, _) => label,
        };
        if let Some([ymin, xmin, ymax, xmax]) = self.boxes.uneven() {
            return Err(ExampleFault::Boxes { ymin, xmin, ymax, xmax });
        }
        // An image with regression targets needs no class label.
        let without = (!self.targets.is_empty()).then_some(ParsedLabels { label: 0, labels: Labels::NONE });
        let ParsedLabels { label, labels } = label.or(without).ok_or(ExampleFault::Missing(LABEL))?;
        let format = self.format.or_else(|| Format::detect(encoded)).ok_or(ExampleFault::Missing(FORMAT))?;
        let sizes = [(HEIGHT, self.height), (WIDTH, self.width), (CHANNELS, self.channels)];
        if let (Format::Raw, Some((key, _))) = (format, sizes.iter().find(|(_, size)| *size == 0)) {
            return Err(ExampleFault::RawSize(key));
        }
        if format != Format::Raw && self.dtype != Dtype::U8 {
            return Err(ExampleFault::DtypeOfFile { dtype: self.dtype, format: format.name() });
        }
        Ok(Example {
            encoded,
            format,
            height: self.height,
            width: self.width,
            channels: self.channels,
            dtype: self.dtype,
            label,
            labels,
            targets: self.targets,
            text: self.text,
            filename: self.filename,
            boxes: if self.boxes.is_empty() { Boxes::default() } else { self.boxes },
            entry_points: self.entry_points,
        })
    }
}

fn utf8_prefix(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or(""),
    }
}

/// Returns a Feature's FloatList. Returns `None` if the Feature has no list, or an empty list of another type.
fn floats<'a>(feature: &'a [u8], key: &'static str) -> Result<Option<Floats<'a>>, ExampleFault> {
    let (mut found, mut fields) = (None, Fields(feature));
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (2, Value::Bytes(list)) => found = Some(Floats(list)),
            // Some programs write an empty list with another type if there are no values.
            (_, Value::Bytes([])) => {}
            _ => return Err(ExampleFault::WrongType { key, expected: "list of floats" }),
        }
    }
    Ok(found)
}

fn size(feature: &[u8], key: &'static str) -> Result<u32, ExampleFault> {
    let value = first_int(feature, key)?;
    u32::try_from(value).map_err(|_| ExampleFault::BadSize { key, value })
}

/// Returns the first value of a Feature's BytesList.
fn first_bytes<'a>(feature: &'a [u8], key: &'static str) -> Result<&'a [u8], ExampleFault> {
    let mut fields = Fields(feature);
    while let Some((number, value)) = fields.next()? {
        if let (1, Value::Bytes(list)) = (number, value) {
            let mut values = Fields(list);
            while let Some((number, value)) = values.next()? {
                if let (1, Value::Bytes(bytes)) = (number, value) {
                    return Ok(bytes);
                }
            }
        }
    }
    Err(ExampleFault::WrongType { key, expected: "byte string" })
}

/// Returns the first value of a Feature's Int64List, packed or not.
fn first_int(feature: &[u8], key: &'static str) -> Result<i64, ExampleFault> {
    let mut fields = Fields(feature);
    while let Some((number, value)) = fields.next()? {
        if let (3, Value::Bytes(list)) = (number, value)
            && let Some(first) = labels::Values::of(list).next()?
        {
            return Ok(first);
        }
    }
    Err(ExampleFault::WrongType { key, expected: "64-bit integer" })
}

// The key of the WordNet id of an image's class. TensorFlow's ImageNet scripts write it to distinguish classes with equal
// names.

const SYNSET: &[u8] = b"image/class/synset";

/// Returns the WordNet id in a payload, or `None` if it is missing or not UTF-8.
pub fn synset(payload: &[u8]) -> Option<&str> {
    let entries = field_values(payload, 1).flat_map(|features| field_values(features, 1));
    let mut features =
        entries.filter(|entry| field_values(entry, 1).next() == Some(SYNSET)).flat_map(|entry| field_values(entry, 2));
    let value = field_values(field_values(features.next()?, 1).next()?, 1).next()?;
    std::str::from_utf8(value).ok().filter(|id| !id.is_empty())
}

/// Iterates over the values for field `number` in a message. Stops at the first damaged field.
fn field_values(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    let mut fields = Fields(message);
    std::iter::from_fn(move || {
        while let Some((found, value)) = fields.next().ok()? {
            if let (true, Value::Bytes(bytes)) = (found == number, value) {
                return Some(bytes);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::super::floats::{BoundingBox, BoxLists, FloatList};
    use super::super::labels::{LabelList, Labels};
    use super::super::message::{encode, encode_with};
    use super::*;
    use crate::format::protobuf::put_header;
    use crate::spec::ImageSpec;

    const SAMPLE: Example<'_> = Example {
        label: 300,
        text: "cat",
        filename: "a.png",
        ..Example::from_raw(&[1, 2, 3, 4, 5, 6], ImageSpec::new(1, 2, 3))
    };

    fn encoded(e: &Example<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(e, &mut out);
        out
    }

    #[test]
    fn examples_round_trip() {
        assert_eq!(parse(&encoded(&SAMPLE)), Ok(SAMPLE));
        let negative = Example { label: -1, text: "", format: Format::Jpeg, ..SAMPLE };
        assert_eq!(parse(&encoded(&negative)), Ok(negative));
        let large = vec![7; 100_000];
        let long = Example { encoded: &large, ..SAMPLE };
        assert_eq!(parse(&encoded(&long)), Ok(long));
        for dtype in Dtype::ALL {
            let typed = Example { dtype, ..SAMPLE };
            assert_eq!(parse(&encoded(&typed)), Ok(typed));
            assert_eq!(
                encoded(&typed) == encoded(&SAMPLE),
                dtype == Dtype::U8,
                "only bytes have no key for their type"
            );
        }
    }

    #[test]
    fn encoded_entry_has_the_bytes_of_protobuf() {
        let bytes = encoded(&SAMPLE);
        let entry: Vec<u8> = [
            &[0x0a, 0x1b, 0x0a, 0x11][..], // Entry of 27 bytes, key of 17.
            b"image/class/label",
            &[0x12, 0x06, 0x1a, 0x04, 0x0a, 0x02, 0xac, 0x02], // Feature, Int64List, packed 300.
        ]
        .concat();
        assert!(bytes.windows(entry.len()).any(|w| w == entry));
        let keys: Vec<usize> = [CHANNELS, LABEL, TEXT, ENCODED, FILENAME, FORMAT, HEIGHT, WIDTH]
            .iter()
            .map(|key| bytes.windows(key.len()).position(|w| w == key.as_bytes()).unwrap())
            .collect();
        assert!(keys.is_sorted());
    }

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_header(number, bytes.len(), &mut out);
        out.extend_from_slice(bytes);
        out
    }

    fn entry(key: &str, feature: &[u8]) -> Vec<u8> {
        field(1, &[field(1, key.as_bytes()), field(2, feature)].concat())
    }

    #[test]
    fn parse_accepts_unpacked_lists_and_unknown_keys_and_fields() {
        let unpacked = field(3, &[0x08, 0x05]); // Int64List { value: 5 } as a plain varint.
        let bytes_list = |b: &[u8]| field(1, &field(1, b));
        let floats = field(2, &field(1, &1.5f32.to_le_bytes()));
        let features = [
            entry(LABEL, &unpacked),
            entry("image/object/area", &floats),
            entry(ENCODED, &bytes_list(b"xyz")),
            entry(FORMAT, &bytes_list(b"jpeg")),
            entry(TEXT, &bytes_list(b"caf\xe9")),
            field(9, b"unknown"),
        ]
        .concat();
        let mut payload = vec![0x2d, 1, 2, 3, 4]; // An unknown fixed32 field.
        payload.extend(field(1, &features));
        let e = parse(&payload).unwrap();
        assert_eq!((e.label, e.encoded, e.format), (5, &b"xyz"[..], Format::Jpeg));
        assert_eq!((e.height, e.text, e.filename), (0, "caf", ""));
    }

    #[test]
    fn keys_of_tensorflow_datasets_are_accepted_too() {
        let bytes_list = |b: &[u8]| field(1, &field(1, b));
        let number = |n: u8| field(3, &field(1, &[n]));
        let jpeg = [0xff, 0xd8, 0xff];
        let tfds = [entry("image", &bytes_list(&jpeg)), entry("label", &number(7)), entry("id", &number(1))].concat();
        let payload = field(1, &tfds);
        let e = parse(&payload).unwrap();
        assert_eq!((e.encoded, e.label, e.format), (&jpeg[..], 7, Format::Jpeg));
        // Other programs may use these keys for something else.
        let both = [entry("label", &bytes_list(b"cat")), entry("image", &number(3)), entry(LABEL, &number(2))].concat();
        let payload = field(1, &[both, entry(ENCODED, &bytes_list(b"\x89PNG\r\n\x1a\n"))].concat());
        let e = parse(&payload).unwrap();
        assert_eq!((e.label, e.format), (2, Format::Png));
        let payload = field(1, &[entry("image", &bytes_list(b"raw")), entry("label", &number(7))].concat());
        assert_eq!(parse(&payload), Err(ExampleFault::Missing(FORMAT)));
        let payload = field(1, &[entry("image", &bytes_list(&jpeg)), entry("label", &bytes_list(b"cat"))].concat());
        assert_eq!(parse(&payload), Err(ExampleFault::WrongType { key: "label", expected: "64-bit integer" }));
    }

    #[test]
    fn boxes_round_trip_and_lists_of_unequal_length_are_refused() {
        let mut lists = BoxLists::default();
        lists.set(&[BoundingBox { ymin: 0.25, xmin: 0.5, ymax: 0.75, xmax: 1.0 }]);
        let boxed = Example { boxes: lists.boxes(), ..SAMPLE };
        assert_eq!(parse(&encoded(&boxed)), Ok(boxed));
        assert_eq!(parse(&encoded(&boxed)).unwrap().boxes.iter().next().unwrap().ymax, 0.75);
        let floats = field(2, &field(1, &1.5f32.to_le_bytes()));
        let uneven = field(1, &[entry(XMIN, &floats), entry(YMIN, &floats)].concat());
        let payload = [encoded(&SAMPLE), uneven].concat();
        assert_eq!(parse(&payload), Err(ExampleFault::Boxes { ymin: 1, xmin: 1, ymax: 0, xmax: 0 }));
        let wrong = field(1, &entry(XMAX, &field(3, &field(1, &[1]))));
        assert_eq!(parse(&wrong), Err(ExampleFault::WrongType { key: XMAX, expected: "list of floats" }));
        let empty = field(1, &entry(XMAX, &field(1, &[])));
        assert!(parse(&[encoded(&SAMPLE), empty].concat()).unwrap().boxes.is_empty());
    }

    #[test]
    fn examples_with_several_or_no_labels_round_trip() {
        let mut list = LabelList::default();
        for labels in [&[][..], &[2, 5, 700]] {
            list.set(labels);
            let several = Example { label: list.first(), labels: list.labels(), text: "", ..SAMPLE };
            let payload = encoded(&several);
            let read = parse(&payload).unwrap();
            assert_eq!(read, several);
            assert_eq!(read.labels.iter().collect::<Vec<_>>(), labels);
            // Damaged data must give an example or a fault, but not a panic.
            for at in 0..payload.len().min(200) {
                let mut damaged = payload.clone();
                damaged[at] ^= 0xff;
                if let Ok(read) = parse(&damaged) {
                    let _ = read.labels.iter().count();
                }
            }
        }
        // A list with one label produces exactly the bytes of a record with one label.
        list.set(&[i64::from(u32::MAX)]);
        let (one, same) = (
            Example { label: list.first(), ..SAMPLE },
            Example { label: list.first(), labels: list.labels(), ..SAMPLE },
        );
        assert_eq!(encoded(&one), encoded(&same));
    }

    #[test]
    fn regression_targets_round_trip_without_a_label() {
        let mut list = FloatList::default();
        list.set([1.5, -2.0].into_iter());
        let numbers = Example { label: 0, labels: Labels::NONE, targets: list.floats(), text: "", ..SAMPLE };
        let payload = encoded(&numbers);
        assert_eq!(parse(&payload), Ok(numbers));
        let key = payload.windows(LABEL.len()).position(|bytes| bytes == LABEL.as_bytes()).unwrap();
        let mut renamed = payload.clone();
        renamed[key] = b'x';
        assert_eq!(parse(&renamed), Ok(numbers), "the label may be missing");
        let wrong = field(1, &entry(TARGETS, &field(3, &field(1, &[1]))));
        assert_eq!(parse(&wrong), Err(ExampleFault::WrongType { key: TARGETS, expected: "list of floats" }));
    }

    #[test]
    fn faults_name_the_key() {
        assert_eq!(parse(&[]), Err(ExampleFault::Missing(ENCODED)));
        let wrong = field(1, &entry(LABEL, &field(1, &field(1, b"7"))));
        assert_eq!(parse(&wrong), Err(ExampleFault::WrongType { key: LABEL, expected: "64-bit integer" }));
        let webp = field(1, &entry(FORMAT, &field(1, &field(1, b"WEBP"))));
        assert_eq!(parse(&webp), Err(ExampleFault::UnknownFormat("WEBP".into())));
        let wide = field(1, &entry(DTYPE, &field(1, &field(1, b"uint32"))));
        assert_eq!(parse(&wide), Err(ExampleFault::UnknownDtype("uint32".into())));
        let (dtype, format) = (Dtype::U16, Format::Png);
        let file = encoded(&Example { dtype, format, ..SAMPLE });
        assert_eq!(parse(&file), Err(ExampleFault::DtypeOfFile { dtype, format: "PNG" }));
        let size = field(1, &entry(HEIGHT, &field(3, &field(1, &[0x80; 9]))));
        assert!(matches!(parse(&size), Err(ExampleFault::Malformed(_))));
    }

    #[test]
    fn parse_never_panics_on_damaged_bytes() {
        let good = encoded(&SAMPLE);
        for cut in 0..good.len() {
            let _ = parse(&good[..cut]);
            for value in [0x00, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[cut] = value;
                let _ = parse(&bad);
            }
        }
        // For every cut, the outer length is beyond the end, so parsing must fail.
        assert!((1..good.len()).all(|cut| parse(&good[..cut]).is_err()));
    }

    #[test]
    fn the_synset_is_found() {
        let mut payload = Vec::new();
        encode_with(&SAMPLE, &[("image/class/synset", "n02012849")], &mut payload);
        assert_eq!(synset(&payload), Some("n02012849"));
        for end in 0..payload.len() {
            let _ = synset(&payload[..end]);
        }
        payload.clear();
        encode_with(&SAMPLE, &[], &mut payload);
        assert_eq!(synset(&payload), None);
    }
}
