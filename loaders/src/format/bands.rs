//! The `dataset.json` keys for images that are not 8-bit grey or RGB: value type, band count, and statistics for each
//! band.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::spec::Dtype;

/// The most channels that an image may have.
pub const MAX_CHANNELS: u32 = 1024;

/// The conversion options that determine how image files are read, as given on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The value of `--bands`: the bands that were kept, from 1, in this order. Empty if all were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<u32>,
    /// The value of `--page`. Like the values below, empty if the option was not given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub page: String,
    /// The value of `--layout`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub layout: String,
    /// The value of `--images`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub images: String,
    /// The value of `--nan`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nan: String,
}

/// Describes the bands in a data set's images: type, number, names and statistics. A band is a channel. The statistics
/// have the stored values' units and describe the split `train`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bands {
    /// The stored values' type.
    #[serde(default, skip_serializing_if = "is_bytes")]
    pub dtype: Dtype,
    /// The number of bands. Always `Some` if [`Bands::need_version`] is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// The bands' names. Empty if they have no names.
    #[serde(default, rename = "bands", skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The options with which `data convert` read the image files. `None` if all options had their defaults. `predict`
    /// reads files with the same options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// Each band's smallest value. Empty if not measured, like the following statistics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub min: Vec<f64>,
    /// Each band's largest value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub max: Vec<f64>,
    /// Each band's percentiles. The key is a whole number from 0 to 100.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub percentiles: BTreeMap<String, Vec<f64>>,
    /// The value that marks pixels without data in the image files. The records have the band's mean in these pixels.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nodata")]
    pub nodata: Option<f64>,
    /// The values that `data convert --to-8bit=MIN,MAX` mapped to 0 and 255. `None` without this range. `predict` cannot
    /// map them, so it refuses images with 16 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_8bit: Option<[f64; 2]>,
}

/// Stores NaN and infinities as texts, because JSON has no such numbers.
mod nodata {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Number(f64),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = value.map(|value| match value.is_finite() {
            true => Stored::Number(value),
            false => Stored::Text(value.to_string().to_lowercase()),
        });
        stored.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        let stored = Option::<Stored>::deserialize(deserializer)?;
        let number = |stored| match stored {
            Stored::Number(number) => Ok(number),
            Stored::Text(text) => text.parse().map_err(|_| {
                D::Error::custom(format!("`nodata`: expected a number, \"nan\", \"inf\" or \"-inf\", got {text:?}"))
            }),
        };
        stored.map(number).transpose()
    }
}

fn is_bytes(dtype: &Dtype) -> bool {
    *dtype == Dtype::U8
}

impl Bands {
    /// Returns true if only programs that know these keys can read the images: they are not bytes, or neither grey nor
    /// RGB. `dataset.json` then has its own version.
    pub fn need_version(&self) -> bool {
        self.dtype != Dtype::U8 || self.channels.is_some_and(|channels| channels != 1 && channels != 3)
    }

    /// Iterates over all statistics: lists with one value per band.
    pub(crate) fn lists(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        [&mut self.min, &mut self.max].into_iter().chain(self.percentiles.values_mut())
    }

    /// Checks the keys.
    ///
    /// # Errors
    ///
    /// Describes the first wrong key.
    pub fn check(&self) -> Result<(), String> {
        if self.need_version() && self.channels.is_none() {
            return Err(format!("`channels` is missing, but a data set with bands of {} needs it", self.dtype));
        }
        if let Some(channels) = self.channels.filter(|channels| !(1..=MAX_CHANNELS).contains(channels)) {
            return Err(format!("`channels`: expected 1 to {MAX_CHANNELS}, got {channels}"));
        }
        self.check_length("bands", self.names.len())?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.names.iter().find(|name| !seen.insert(*name)) {
            return Err(format!("`bands`: expected different names, got \"{}\" twice", twice.escape_debug()));
        }
        // Numbers such as 05 are not allowed.
        let is_percent = |key: &str| key.parse().is_ok_and(|percent: u8| percent <= 100 && percent.to_string() == key);
        if let Some(key) = self.percentiles.keys().find(|key| !is_percent(key)) {
            return Err(format!(
                "`percentiles`: expected whole numbers from 0 to 100 as keys, got \"{}\"",
                key.escape_debug()
            ));
        }
        let selected = self.reading.as_ref().map_or(0, |reading| reading.bands.len());
        if selected > MAX_CHANNELS as usize {
            return Err(format!("`reading.bands`: expected at most {MAX_CHANNELS} bands, got {selected}"));
        }
        let percentiles = self.percentiles.iter().map(|(key, values)| (format!("percentiles.{key}"), values));
        let lists = [("min".to_string(), &self.min), ("max".to_string(), &self.max)].into_iter().chain(percentiles);
        for (key, values) in lists {
            self.check_length(&key, values.len())?;
            if let Some(wrong) = values.iter().find(|value| !value.is_finite()) {
                return Err(format!("`{key}`: expected finite numbers, got {wrong}"));
            }
        }
        match self.min.iter().zip(&self.max).zip(1..).find(|((min, max), _)| min > max) {
            Some(((min, max), band)) => Err(format!("`min` of band {band} is {min}, which is above its `max`, {max}")),
            None => Ok(()),
        }
    }

    /// Returns an error unless the list `key` is empty or has a value for each band. Also returns an error if it is too long.
    pub(super) fn check_length(&self, key: &str, length: usize) -> Result<(), String> {
        match self.channels {
            _ if length > MAX_CHANNELS as usize => {
                Err(format!("`{key}` has {length} values, expected at most {MAX_CHANNELS}"))
            }
            Some(channels) if length != 0 && length != channels as usize => {
                Err(format!("`{key}` has {length} values, but `channels` is {channels}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_bands() -> Bands {
        let percentiles =
            [("1", vec![3.0, 30.0]), ("99", vec![9.0, 90.0])].map(|(key, values)| (key.to_string(), values));
        Bands {
            dtype: Dtype::U16,
            channels: Some(2),
            names: vec!["red".into(), "near infrared".into()],
            min: vec![1.0, 2.0],
            max: vec![10.0, 100.0],
            percentiles: percentiles.into(),
            nodata: Some(-9999.0),
            reading: None,
            to_8bit: Some([0.0, 4095.0]),
        }
    }

    #[test]
    fn band_keys_round_trip_and_are_omitted_for_grey_and_rgb() {
        let text = serde_json::to_string(&two_bands()).unwrap();
        let expected =
            r#"{"dtype":"uint16","channels":2,"bands":["red","near infrared"],"min":[1.0,2.0],"max":[10.0,100.0],"#;
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(serde_json::from_str::<Bands>(&text).unwrap(), two_bands());
        let reading = Reading { bands: vec![3, 1], page: "all".into(), ..Reading::default() };
        let read = Bands { reading: Some(reading), ..Bands::default() };
        let text = r#"{"reading":{"bands":[3,1],"page":"all"}}"#;
        assert_eq!((serde_json::to_string(&read).unwrap().as_str(), serde_json::from_str(text).unwrap()), (text, read));
        assert_eq!(serde_json::to_string(&Bands::default()).unwrap(), "{}");
        for (nodata, text) in [(f64::NAN, r#"{"nodata":"nan"}"#), (f64::NEG_INFINITY, r#"{"nodata":"-inf"}"#)] {
            assert_eq!(serde_json::to_string(&Bands { nodata: Some(nodata), ..Bands::default() }).unwrap(), text);
            let back = serde_json::from_str::<Bands>(text).unwrap().nodata.unwrap();
            assert_eq!(back.to_bits(), nodata.to_bits());
        }
        let error = serde_json::from_str::<Bands>(r#"{"nodata":"none"}"#).unwrap_err().to_string();
        assert!(error.contains("expected a number, \"nan\""), "{error}");
        let of = |dtype, channels| Bands { dtype, channels, ..Bands::default() }.need_version();
        assert!(!of(Dtype::U8, None) && !of(Dtype::U8, Some(1)) && !of(Dtype::U8, Some(3)));
        assert!(of(Dtype::U8, Some(4)) && of(Dtype::U16, Some(3)) && of(Dtype::F32, None));
    }

    #[test]
    fn invalid_band_keys_are_named() {
        type Spoil = fn(&mut Bands);
        let cases: [(Spoil, &[&str]); 13] = [
            (|b| b.channels = None, &["`channels` is missing", "uint16"]),
            (|b| b.channels = Some(0), &["`channels`: ", "1 to 1024", "got 0"]),
            (|b| b.channels = Some(1025), &["`channels`: ", "1 to 1024", "got 1025"]),
            (|b| b.names.truncate(1), &["`bands` has 1 values", "`channels` is 2"]),
            (|b| b.names[1] = "red".into(), &["`bands`: ", "\"red\" twice"]),
            (|b| b.min.push(1.0), &["`min` has 3 values", "`channels` is 2"]),
            (|b| b.max[0] = f64::INFINITY, &["`max`", "finite"]),
            (|b| b.min[1] = 101.0, &["`min` of band 2", "above its `max`"]),
            (|b| b.names = vec!["a".into(); 1_000_000], &["`bands` has 1000000 values", "at most 1024"]),
            (
                |b| b.reading = Some(Reading { bands: vec![1; 1025], ..Reading::default() }),
                &["`reading.bands`: ", "at most 1024", "got 1025"],
            ),
            (|b| _ = b.percentiles.insert("5".into(), vec![1.0]), &["`percentiles.5` has 1 values", "`channels` is 2"]),
            (
                |b| _ = b.percentiles.insert("101".into(), vec![1.0, 1.0]),
                &["`percentiles`: ", "from 0 to 100", "got \"101\""],
            ),
            (
                |b| _ = b.percentiles.insert("05".into(), vec![1.0, 1.0]),
                &["`percentiles`: ", "from 0 to 100", "got \"05\""],
            ),
        ];
        assert_eq!(two_bands().check(), Ok(()));
        for (spoil, parts) in cases {
            let mut bands = two_bands();
            spoil(&mut bands);
            let problem = bands.check().unwrap_err();
            assert!(parts.iter().all(|part| problem.contains(part)), "{parts:?} in {problem}");
        }
    }
}
