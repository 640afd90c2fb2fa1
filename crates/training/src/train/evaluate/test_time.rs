//! Which views of an image test-time augmentation looks at: the image, its mirror image, its four corners beside the centre, or all of
//! these (ten crops).

use loaders::transform::HEAD_WORDS;
use loaders::{Images, Manifest, Pipeline};

use crate::error::Error;

/// Which views of an image are scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestTime {
    /// Mirrored ones beside the others.
    pub flip: bool,
    /// The four corners beside the centre.
    pub corners: bool,
}

/// Transforms that settle which part of an image is seen, and from which side.
const CROPS: [&str; 3] = ["resize", "center_crop", "corner_crop"];

impl TestTime {
    /// Whether there is more than one view.
    pub fn is_on(self) -> bool {
        self.flip || self.corners
    }

    /// The lists of transforms of all views, made from that of the plain one, which is the first.
    ///
    /// # Errors
    /// Why there are no corners.
    pub fn lists(self, ops: &[String]) -> Result<Vec<Vec<String>>, String> {
        let mut lists = vec![ops.to_vec()];
        if self.corners {
            let centre = ops.iter().position(|op| name(op) == "center_crop").ok_or(
                "the corners take the place of center_crop(size), which augment.eval of this model does not have",
            )?;
            let size = ops[centre].trim_start_matches("center_crop").trim_matches(['(', ')']).to_string();
            lists.extend((0..4).map(|corner| {
                let mut list = ops.to_vec();
                list[centre] = format!("corner_crop({size}, {corner})");
                list
            }));
        }
        if self.flip {
            let mirrored: Vec<Vec<String>> = lists.iter().map(|list| mirrored(list)).collect();
            lists.extend(mirrored);
        }
        Ok(lists)
    }

    /// The pipelines of all views, made from the plain one; none but that where nothing is wanted.
    ///
    /// # Errors
    /// For views that cannot be made of these images.
    pub fn pipelines(self, plain: &Pipeline, images: Images, manifest: &Manifest) -> Result<Vec<Pipeline>, Error> {
        let lists = self.lists(&plain.ops()).map_err(Error::Usage)?;
        let of = |list: &Vec<String>| Ok(Pipeline::new(list, images, manifest, 0)?);
        std::iter::once(Ok(plain.clone())).chain(lists[1..].iter().map(of)).collect()
    }
}

fn name(op: &str) -> &str {
    op.split('(').next().unwrap_or(op).trim()
}

fn mirrored(list: &[String]) -> Vec<String> {
    let place =
        list.iter().position(|op| !HEAD_WORDS.contains(&name(op)) && !CROPS.contains(&name(op))).unwrap_or(list.len());
    let mut list = list.to_vec();
    list.insert(place, "mirror".into());
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(flip: bool, corners: bool, ops: &[&str]) -> Result<Vec<Vec<String>>, String> {
        TestTime { flip, corners }.lists(&ops.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn views_of_a_list() {
        let photos = ["resize(256)", "center_crop(224)", "normalize(0.5, 0.2)"];
        assert_eq!(lists(false, false, &photos).unwrap(), [photos]);
        let two = lists(true, false, &photos).unwrap();
        assert_eq!(two[1], ["resize(256)", "center_crop(224)", "mirror", "normalize(0.5, 0.2)"]);
        let ten = lists(true, true, &photos).unwrap();
        assert_eq!(ten.len(), 10);
        assert_eq!(ten[4], ["resize(256)", "corner_crop(224, 3)", "normalize(0.5, 0.2)"]);
        assert_eq!(ten[6], ["resize(256)", "corner_crop(224, 0)", "mirror", "normalize(0.5, 0.2)"]);
        assert_eq!(lists(true, false, &["normalize"]).unwrap()[1], ["mirror", "normalize"]);
        let stored = ["ignore_exif", "resize(256)", "center_crop(224)", "normalize"];
        assert_eq!(lists(true, false, &stored).unwrap()[1][3..], ["mirror", "normalize"]);
        assert!(lists(false, true, &["normalize"]).unwrap_err().contains("center_crop"));
    }
}
