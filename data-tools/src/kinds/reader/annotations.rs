//! Boxes of objects in ImageNet's images: an archive of XML files in Pascal VOC's layout, one for each image, of its name.

use super::budget::{Budget, read_bounded};
use super::input;
use crate::error::Error;
use loaders::example::BoundingBox;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// The longest XML file that is read.
const MOST: u64 = 1 << 20;

/// The boxes of images by their names without ending.
pub(crate) type Annotations = HashMap<String, Vec<BoundingBox>>;

/// Adds the boxes in the archive at `path`, .tar or .tar.gz, to `found`.
///
/// # Errors
/// A file that is no such archive, or is cut short; an XML file without sizes or with edges that are no numbers.
pub(crate) fn read(path: &Path, budget: &mut Budget, found: &mut Annotations) -> Result<(), Error> {
    let stream = input::open(path, budget)?;
    let mut archive = tar::Archive::new(stream);
    let failed = |e: io::Error, budget: &Budget| input::read_error(path, budget, e);
    for entry in archive.entries().map_err(|e| failed(e, budget))? {
        let mut entry = entry.map_err(|e| failed(e, budget))?;
        let name = entry.path().map_err(|e| failed(e, budget))?.into_owned();
        if name.extension().is_none_or(|ending| ending != "xml") {
            continue;
        }
        let bytes = read_bounded(&mut entry, MOST).map_err(|e| failed(e, budget))?;
        let wrong = |what: &str| Error::input(&path.join(&name), format!("{what}; fetch it again"));
        let bytes = bytes.ok_or_else(|| wrong("too long for the boxes of an image"))?;
        let boxes = parse(&String::from_utf8_lossy(&bytes)).map_err(wrong)?;
        let stem = name.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        budget.take(path, (stem.len() + boxes.len() * size_of::<BoundingBox>() + 64) as u64)?;
        found.insert(stem, boxes);
    }
    // to the end of the stream: only there gzip reports whether its content was complete
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop).map_err(|e| failed(e, budget))
}

/// The text of the first element `name` in `xml`, and what follows it.
fn element<'a>(xml: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
}

/// The boxes in an XML file, in parts of the image; those of no width or height are left out.
fn parse(xml: &str) -> Result<Vec<BoundingBox>, &'static str> {
    let number = |xml: &str, name: &str| -> Result<f32, &'static str> {
        let text = element(xml, name).ok_or("an edge or size is missing")?.0;
        text.trim().parse().map_err(|_| "an edge or size is no number")
    };
    let (size, mut rest) = element(xml, "size").ok_or("it has no size")?;
    let (width, height) = (number(size, "width")?, number(size, "height")?);
    if !(width > 0.0 && height > 0.0) {
        return Err("its size is not above 0");
    }
    let mut boxes = Vec::new();
    while let Some((object, following)) = element(rest, "object") {
        rest = following;
        let edges = element(object, "bndbox").ok_or("an object has no bndbox")?.0;
        let edge = |name: &str, length: f32| number(edges, name).map(|edge| (edge / length).clamp(0.0, 1.0));
        let found = BoundingBox {
            ymin: edge("ymin", height)?,
            xmin: edge("xmin", width)?,
            ymax: edge("ymax", height)?,
            xmax: edge("xmax", width)?,
        };
        if found.ymax > found.ymin && found.xmax > found.xmin {
            boxes.push(found);
        }
    }
    Ok(boxes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_parts_of_the_image() {
        let object = |edges: [f32; 4]| {
            let [a, b, c, d] = edges;
            format!(
                "<object><name>n0</name><bndbox>\n<xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
            )
        };
        let size = "<annotation><size>\n<width>200</width><height>100</height><depth>3</depth></size>";
        let xml = format!(
            "{size}{}{}{}",
            object([20.0, 25.0, 100.0, 75.0]),
            object([5.0, 5.0, 5.0, 9.0]),
            object([0.0, 0.0, 300.0, 100.0])
        );
        let found = parse(&xml).unwrap();
        assert_eq!(found[0], BoundingBox { ymin: 0.25, xmin: 0.1, ymax: 0.75, xmax: 0.5 });
        assert_eq!(found[1..], [BoundingBox { ymin: 0.0, xmin: 0.0, ymax: 1.0, xmax: 1.0 }]);
        assert!(parse("<annotation></annotation>").is_err());
        assert!(parse(&xml.replace("<xmin>20</xmin>", "<xmin>x</xmin>")).is_err());
    }
}
