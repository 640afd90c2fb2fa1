//! Warns if a batch norm will see a single value per channel, for example one image with 1x1 maps. Its output is then its bias, for any
//! image, and the variance cannot be estimated. PyTorch refuses such batches.

use loaders::order::worker_positions;
use net::NetSpec;

use super::division::Division;

/// Returns the warning if a worker gets only one image in some step. `across`: batch norm uses the images of all workers together.
pub fn warning(net: &NetSpec, division: &Division, across: bool) -> Option<String> {
    let least = |step: u64| {
        let images = division.images_of(step);
        let shares = (0..division.workers).map(|v| worker_positions(images, v, division.workers).len());
        if across { Some(images) } else { shares.filter(|share| *share > 0).min() }
    };
    let (first, last) = (least(0)?, least(division.steps_per_epoch.checked_sub(1)?)?);
    if first.min(last) > 1 {
        return None;
    }
    let shapes = net.shapes().ok()?;
    let single = net.nodes.iter().filter(|node| {
        let input = node.inputs.first().and_then(|input| shapes.get(input.0));
        node.op.statistics_momentum().is_some() && input.is_some_and(|shape| shape.h * shape.w == 1)
    });
    let names: Vec<&str> = single.map(|node| node.name.as_str()).collect();
    let (name, more) = (names.first()?, names.len() - 1);
    let layers = match more {
        0 => format!("batch normalisation {name}"),
        _ => format!("batch normalisation {name} and {more} more"),
    };
    let Division { images, batch, workers, .. } = division;
    let (when, cure) = match first {
        1 => ("in each step a worker has 1 image".to_string(), "give fewer workers or a larger batch"),
        _ => (
            format!(
                "in the last step of each epoch a worker has 1 image ({images} images, batch = {batch}, workers = {workers})"
            ),
            "give another batch",
        ),
    };
    Some(format!(
        "warning: {layers}: {when} with maps of 1x1, so each channel has one value. Its output is then the bias alone and says nothing of \
         the image, and where no other worker has images the running variance stays as it is: {cure}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::models;

    fn warned(model: &str, images: u64, batch: usize, workers: usize, across: bool) -> Option<String> {
        let net = models::build(model, net::Shape { c: 3, h: 32, w: 32 }, 10).unwrap();
        warning(&net, &Division::new(images, batch, workers, 0, 1), across)
    }

    #[test]
    fn one_value_per_channel_is_told_before_the_first_step() {
        // for 32x32 images, the last stage of ResNet-18 has 1x1 maps
        let each = warned("resnet18", 257, 64, 64, false).unwrap();
        assert!(each.contains("layer4.0.bn1 and ") && each.contains("in each step a worker has 1 image"), "{each}");
        let last = warned("resnet18", 257, 64, 1, false).unwrap();
        assert!(last.contains("in the last step of each epoch") && last.contains("257 images, batch = 64"), "{last}");
        for (images, batch, workers, across) in
            [(256, 64, 1, false), (257, 43, 1, false), (256, 64, 32, false), (256, 64, 64, true)]
        {
            assert_eq!(warned("resnet18", images, batch, workers, across), None, "{images} {batch} {workers}");
        }
        assert!(warned("resnet18", 257, 64, 4, true).is_some());
        // all maps of ResNet-20 are larger, and LeNet has no batch norm
        assert_eq!([warned("resnet20", 257, 64, 64, false), warned("lenet", 257, 64, 64, false)], [None, None]);
    }
}
