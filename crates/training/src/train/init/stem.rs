//! Adapts the first convolution in a weight file if the images have a different channel count. If the file has n
//! channels and the images have m, the file's channels are repeated or averaged, and then multiplied by n / m. For n =
//! 3, `"repeat"` computes the same as timm. For other n, timm supports only m = 1.

use engine::graph::BuildError;
use formats::interop::Weights;
use net::NetSpec;
use recipe::{Init, Stem, matches};

use super::matching;
use crate::error::Error;

/// The result of [`adapt`]: weights whose first layer fits this run's images.
pub struct AdaptedStem {
    pub weights: Weights,
    /// The recipe's section `[init]`. Layers that must start at random are added to its `exclude`.
    pub init: Init,
    /// The changes, for the log.
    pub notes: Vec<String>,
}

/// Adapts all layers that read the images, if they have another channel count in the file. Returns an error if the
/// channels differ, `init.stem` is not set and `init.strict` is. Also returns the errors from [`matching::renamed`].
pub fn adapt(net: &NetSpec, mut weights: Weights, init: &Init) -> Result<AdaptedStem, Error> {
    let (mut init, mut notes) = (init.clone(), Vec::new());
    let found = matching::renamed(&weights, &init)?;
    let channels = net.shapes().map_err(BuildError::from)?[net.image().0].c;
    let wanted = net.tensors().map_err(BuildError::from)?.parameters;
    for node in net.nodes.iter().filter(|node| node.inputs.contains(&net.image())) {
        let name = format!("{}.weight", node.name);
        let excluded = init.exclude.iter().flatten().any(|pattern| matches(pattern, &name));
        let own = wanted.iter().find(|(other, _)| *other == name).map(|(_, shape)| shape);
        let (Some(own), Some(&index), false) = (own, found.get(&name), excluded) else { continue };
        let (_, shape, values) = &mut weights.tensors[index];
        let given = match (&own[..], &shape[..]) {
            (&[co, ci, kh, kw], &[fo, fi, fh, fw]) if [co, kh, kw] == [fo, fh, fw] && ci == channels && fi != ci => fi,
            _ => continue,
        };
        let Some(stem) = init.stem else {
            if !init.strict() {
                continue;
            }
            return Err(Error::Usage(format!(
                "init.from: {name} of {} reads images with {}, but the images of this run have {channels}. Set init.stem = \
                 \"repeat\" or \"mean\" to use the filters of the file for all channels, or \"fresh\" to start with random filters",
                weights.path.display(),
                base::text::plural(given, "channel")
            )));
        };
        if stem == Stem::Fresh {
            init.exclude.get_or_insert_default().push(name.clone());
            notes.push(format!(
                "init.stem = \"fresh\": {name} starts with random weights, because this layer reads images with {} in the file",
                base::text::plural(given, "channel")
            ));
            continue;
        }
        *values = spread(values, stem, own, given);
        shape[1] = channels;
        notes.push(format!(
            "init.stem = \"{stem}\": {name} has {channels} instead of {given} channels, scaled by {given}/{channels}"
        ));
    }
    Ok(AdaptedStem { weights, init, notes })
}

/// Converts filters that read `given` channels to the shape `own`, which is (out, in, height, width).
fn spread(values: &[f32], stem: Stem, own: &[usize], given: usize) -> Vec<f32> {
    let (channels, plane) = (own[1], own[2] * own[3]);
    let scale = given as f32 / channels as f32;
    let mut out = Vec::with_capacity(own.iter().product());
    for filter in values.chunks_exact((given * plane).max(1)) {
        let mean = |at: usize| filter.iter().skip(at).step_by(plane).sum::<f32>() / given as f32;
        for channel in 0..channels {
            out.extend((0..plane).map(|at| match stem {
                // for one channel this is the sum of the file's channels, as in timm
                Stem::Repeat if channels > 1 => filter[channel % given * plane + at] * scale,
                _ => mean(at) * scale,
            }));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Conv, Flatten, Linear, Shape};
    use support::mentions;

    fn network(channels: usize) -> NetSpec {
        let mut net = NetSpec::new("x", Shape::image(channels, 4, 4));
        let x = net.add("conv", Conv::new(2, 1), net.image());
        let x = net.add("flatten", Flatten, x);
        net.add("fc", Linear::new(5), x);
        net
    }

    fn adapted(channels: usize, stem: Option<Stem>, strict: bool) -> Result<AdaptedStem, Error> {
        let net = network(channels);
        let weights = Weights {
            path: "a.pth".into(),
            format: "PyTorch",
            tensors: vec![
                ("conv.weight".into(), vec![2, 3, 1, 1], vec![1.0, 2.0, 6.0, 3.0, 6.0, 9.0]),
                ("fc.weight".into(), vec![5, 32], vec![0.5; 160]),
                ("fc.bias".into(), vec![5], vec![0.5; 5]),
            ],
            ..Weights::default()
        };
        adapt(&net, weights, &Init { stem, strict: Some(strict), ..Init::default() })
    }

    /// timm's `adapt_input_conv` computes the same values for "repeat".
    #[test]
    fn filters_are_repeated_and_scaled() {
        let values = |channels, stem| adapted(channels, Some(stem), true).unwrap().weights.tensors[0].2.clone();
        let expected = [1.0, 2.0, 6.0, 1.0, 2.0, 3.0, 6.0, 9.0, 3.0, 6.0].map(|value| value * 0.6f32);
        assert_eq!(values(5, Stem::Repeat), expected);
        assert_eq!(values(1, Stem::Repeat), [9.0, 18.0]);
        assert_eq!(values(2, Stem::Mean), [4.5, 4.5, 9.0, 9.0]);
        assert_eq!(values(3, Stem::Mean), [1.0, 2.0, 6.0, 3.0, 6.0, 9.0], "equal channels are not touched");
        let AdaptedStem { weights, notes, .. } = adapted(13, Some(Stem::Repeat), true).unwrap();
        assert_eq!(weights.tensors[0].1, [2, 13, 1, 1]);
        assert_eq!(notes.len(), 1, "{notes:?}");
        mentions(&notes[0], &["init.stem = \"repeat\"", "conv.weight has 13", "3 channels", "3/13"]);
    }

    #[test]
    fn without_the_key_other_channels_are_refused() {
        let error = adapted(13, None, true).err().unwrap();
        mentions(error, &["conv.weight", "a.pth", "3 channels", "have 13", "init.stem = \"repeat\""]);
        assert!(adapted(13, None, false).is_ok() && adapted(3, None, true).is_ok());
        let AdaptedStem { weights, init, .. } = adapted(13, Some(Stem::Fresh), true).unwrap();
        let fit = matching::match_tensors(&network(13), &weights, &init).unwrap();
        let excluded: Vec<&str> = fit.with(matching::MatchResult::Excluded).map(|row| &*row.name).collect();
        assert_eq!(excluded, ["conv.weight"]);
    }
}
