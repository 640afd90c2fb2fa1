//! The seal of a model file: a checksum of each part. It stays in the file when another program rewrites it, and then
//! shows which parts changed.
//!
//! Like the checksum of the whole file, it detects accidents and edits. It is not a signature.

use std::collections::BTreeMap;

use loaders::record::masked_crc32c;

use super::error::Error;
use super::h5;
use super::model::{LayerWeights, ModelFile};
use super::reader::Group;

/// The subgroup of `trireme` with one attribute per part.
const NAME: &str = "seal";

impl ModelFile {
    /// Writes the checksums of all parts.
    pub(super) fn put_seal(&self, ours: &h5::Group) -> Result<(), Error> {
        let group = ours.create(NAME)?;
        part_checksums(self).iter().try_for_each(|(part, checksum)| group.put_number(part, *checksum))
    }

    /// Returns the parts of an opened model that do not match their checksums, and parts that are gone. If the file has
    /// no checksums of its parts, returns a text that says so.
    pub(super) fn unsealed(&self, ours: &Group) -> Result<Vec<String>, Error> {
        if !ours.has(NAME) {
            return Ok(vec!["unknown, because the file has no checksums of its parts".into()]);
        }
        let group = ours.open(NAME)?;
        let mut sealed = BTreeMap::new();
        for part in group.attribute_names() {
            sealed.insert(part.to_string(), group.number::<u32>(part)?);
        }
        let found = part_checksums(self);
        let changed =
            found.iter().filter(|(part, checksum)| sealed.get(*part) != Some(checksum)).map(|(part, _)| part.clone());
        let gone = sealed.keys().filter(|part| !found.contains_key(*part)).map(|part| format!("{part} (gone)"));
        Ok(changed.chain(gone).collect())
    }
}

/// Computes the checksum of each part. The keys are names for messages.
fn part_checksums(model: &ModelFile) -> BTreeMap<String, u32> {
    let ModelFile {
        network,
        definition,
        input,
        image,
        classes,
        targets: _,
        multi_label,
        preprocess,
        bands: _,
        mean,
        std,
        recipe,
        scores,
        epoch,
        step,
        layers,
        ema,
    } = model;
    let texts = [
        ("network", format!("{network:?} {input:?} {image:?}")),
        ("classes", format!("{classes:?}")),
        ("preprocess", format!("{preprocess:?} {mean:?} {std:?}")),
        ("recipe", recipe.clone()),
        ("scores", format!("{scores:?} {epoch} {step}")),
    ];
    // A network of the catalogue has no definition.
    let definition = Some(("definition", definition.clone())).filter(|(_, text)| !text.is_empty());
    // This part exists only for multi-label models.
    let several = multi_label.then(|| ("labels", "several".to_string()));
    let texts = texts
        .into_iter()
        .chain(definition)
        .chain(several)
        // Models for grey or RGB images of bytes have this part only if dataset.json describes their bands.
        .chain(model.bands_text().map(|text| ("bands", text)))
        .chain(model.targets_text().map(|text| ("targets", text)))
        .map(|(part, text)| (part.to_string(), masked_crc32c(text.as_bytes())));
    let weights = layers.iter().map(|layer| (format!("weights of {}", layer.name), layer_checksum(layer)));
    let averages = ema.iter().map(|layer| (format!("averages of {}", layer.name), layer_checksum(layer)));
    texts.chain(weights).chain(averages).collect()
}

fn layer_checksum(layer: &LayerWeights) -> u32 {
    let mut bytes = layer.kind.to_text().into_bytes();
    for (field, shape, values) in &layer.tensors {
        bytes.extend(format!(" {field} {shape:?} ").into_bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    masked_crc32c(&bytes)
}

#[cfg(test)]
mod tests {
    use hdf5_metno as hdf5;

    use super::super::model_file::Opened;
    use super::super::rewrite;
    use super::*;
    use crate::temporary::Temporary;

    /// Edits a file with libhdf5, as another program would, and returns the warning about it.
    fn edited(edit: impl FnOnce(&hdf5::File) -> hdf5::Result<()>) -> String {
        let Temporary(path) = &Temporary::new("seal.h5");
        ModelFile::sample().write(path).unwrap();
        let file = hdf5::File::open_rw(path).unwrap();
        edit(&file).unwrap();
        file.close().unwrap();
        let opened = ModelFile::open(path).unwrap();
        let strict = ModelFile::read(path).unwrap_err();
        let text = opened.warning.expect("no warning");
        assert!(matches!(&strict, Error::Unsealed { text: said, .. } if *said == text), "{strict}");
        assert!(!strict.to_string().contains("cut short"), "{strict}");
        text
    }

    #[test]
    fn edits_are_reported_by_part() {
        let bias = |file: &hdf5::File| file.dataset("model_weights/fc2/fc2/bias:0")?.write_raw(&[1f32, 2.0]);
        let named = |edit: &dyn Fn(&hdf5::File) -> hdf5::Result<()>| {
            let text = edited(edit);
            text.split_once(": ").unwrap_or_else(|| panic!("no parts: {text}")).1.to_string()
        };
        assert_eq!(named(&bias), "weights of fc2");
        let average = |file: &hdf5::File| file.dataset("trireme/ema/fc1/fc1/bias:0")?.write_raw(&[1f32, 2.0]);
        assert_eq!(named(&average), "averages of fc1");
        let both = |file: &hdf5::File| {
            file.group("trireme")?.attr("mean")?.write_raw(&[0.75f64])?;
            file.group("trireme/scores")?.attr("test/top1")?.write_scalar(&0.9f64)
        };
        assert_eq!(named(&both), "preprocess, scores");
        let beside = |file: &hdf5::File| file.create_group("notes").map(drop);
        let none = edited(beside);
        assert!(none.starts_with("all parts"), "{none}");
        let unsealed = |file: &hdf5::File| file.group("trireme")?.unlink("seal");
        assert!(named(&unsealed).contains("no checksums"));
    }

    /// Rewrites a model in the layout that h5py gives new files: superblock 0 and symbol tables.
    #[test]
    fn a_rewritten_file_is_read_by_libhdf5() {
        let [Temporary(whole), Temporary(other), Temporary(again)] = &["whole", "other", "again"].map(Temporary::new);
        ModelFile::sample().write(whole).unwrap();
        rewrite_as_old(whole, other);
        assert!(matches!(ModelFile::open(other), Err(Error::Rewritten { .. })));
        std::fs::write(again, "").unwrap();
        rewrite(other, again).unwrap();
        let Opened { model: read, warning } = ModelFile::open(again).unwrap();
        assert_eq!(read, ModelFile::sample());
        assert!(warning.as_ref().is_some_and(|text| text.starts_with("all parts")), "{warning:?}");
    }

    /// Copies arrays and attributes to a file in HDF5's oldest format.
    fn rewrite_as_old(from: &std::path::Path, to: &std::path::Path) {
        let (from, to) = (hdf5::File::open(from).unwrap(), hdf5::File::create(to).unwrap());
        fn copy(from: &hdf5::Group, to: &hdf5::Group) {
            for name in from.attr_names().unwrap() {
                let attribute = from.attr(&name).unwrap();
                let shape = attribute.shape();
                macro_rules! same {
                    ($($kind:ty),*) => {$(
                        if attribute.dtype().unwrap() == hdf5::Datatype::from_type::<$kind>().unwrap() {
                            let values: Vec<$kind> = attribute.read_raw().unwrap();
                            let new = to.new_attr::<$kind>().shape(&shape[..]).create(name.as_str()).unwrap();
                            new.write_raw(&values).unwrap();
                        }
                    )*};
                }
                same!(u64, u32, f64, f32, hdf5::types::VarLenUnicode);
            }
            for array in from.datasets().unwrap() {
                let name = array.name().rsplit('/').next().unwrap().to_string();
                let new = to
                    .new_dataset::<f32>()
                    .shape(array.shape())
                    .chunk(array.shape())
                    .deflate(4)
                    .create(name.as_str())
                    .unwrap();
                new.write_raw(&array.read_raw::<f32>().unwrap()).unwrap();
            }
            for group in from.groups().unwrap() {
                let name = group.name().rsplit('/').next().unwrap().to_string();
                copy(&group, &to.create_group(&name).unwrap());
            }
        }
        copy(&from, &to);
    }
}
