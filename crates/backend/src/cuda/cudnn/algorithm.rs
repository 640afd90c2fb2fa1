//! One of cuDNN's algorithms for a graph, by numbers that name it again in another process: an engine and the values of its knobs.

use std::fmt;

use cudarc::cudnn::sys::{cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind};

use super::descriptor::{Descriptor, Knob};
use crate::Error;

/// More knobs than there are kinds of (46 in cuDNN 9.26): cuDNN does not say how many an engine has before it is given room for them.
const KNOBS: usize = 128;

/// An engine's number and its knobs: their kinds and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvAlgorithm {
    pub engine: i64,
    pub knobs: Vec<(u32, i64)>,
}

impl ConvAlgorithm {
    /// Of a configuration that a heuristic proposes; with its engine.
    pub fn of(config: &Descriptor) -> Result<Option<(Self, Descriptor)>, Error> {
        let engine =
            config.get_all(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, Some(1))?.pop();
        let Some(engine) = engine else { return Ok(None) };
        let mut number = [0i64];
        engine.get(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &mut number)?;
        let choices = config.get_all(
            Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
            Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
            Some(KNOBS),
        )?;
        let read = |choice: &Descriptor| {
            let (mut kind, mut value) = ([Knob(0)], [0i64]);
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &mut kind)?;
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &mut value)?;
            Ok((kind[0].0, value[0]))
        };
        let knobs = choices.iter().map(read).collect::<Result<_, Error>>()?;
        Ok(Some((Self { engine: number[0], knobs }, engine)))
    }

    /// From the text that [`fmt::Display`] gives.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let engine = words.next()?.parse().ok()?;
        let knob = |word: &str| {
            let (kind, value) = word.split_once('=')?;
            Some((kind.parse().ok()?, value.parse().ok()?))
        };
        Some(Self { engine, knobs: words.map(knob).collect::<Option<_>>()? })
    }
}

impl fmt::Display for ConvAlgorithm {
    /// The engine, then `kind=value` for each knob, spaces between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.engine)?;
        self.knobs.iter().try_for_each(|(kind, value)| write!(f, " {kind}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_survive_as_text() {
        for algorithm in
            [ConvAlgorithm { engine: 58, knobs: vec![(2, -1), (45, 0)] }, ConvAlgorithm { engine: -1, knobs: vec![] }]
        {
            assert_eq!(ConvAlgorithm::parse(&algorithm.to_string()), Some(algorithm));
        }
        for odd in ["", "x", "3 4", "3 4=", "3  4=1"] {
            assert_eq!(ConvAlgorithm::parse(odd), None, "{odd:?}");
        }
    }
}
