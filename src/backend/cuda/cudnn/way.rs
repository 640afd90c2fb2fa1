//! One of cuDNN's ways to run a graph, by numbers that name it again in another process: an engine and how its knobs are turned.

use std::fmt;

use cudarc::cudnn::sys::{cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind};

use super::Device;
use super::convolution::Graph;
use super::descriptor::{Descriptor, Knob};
use crate::backend::Error;

/// More knobs than there are kinds of (46 in cuDNN 9.26): cuDNN does not tell how many an engine has before it is given room for them.
const KNOBS: usize = 128;

/// An engine's number and its knobs: their kinds and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub engine: i64,
    knobs: Vec<(u32, i64)>,
}

impl Way {
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

    /// The configuration of a graph that runs so, with what it refers to; an error where cuDNN has no such way for it.
    pub fn config(&self, device: &Device<'_>, graph: &Graph) -> Result<(Descriptor, Vec<Descriptor>), Error> {
        let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
        engine.refer(Name::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &[&graph.root])?;
        engine.set(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[self.engine])?;
        if let Device::Described(properties) = device {
            engine.refer(Name::CUDNN_ATTR_ENGINE_DEVICEPROP, &[properties])?;
        }
        engine.finalize("an engine")?;
        let knob = |&(kind, value): &(u32, i64)| {
            let choice = Descriptor::new(Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?;
            choice.set(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &[Knob(kind)])?;
            choice.set(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[value])?;
            choice.finalize("a knob of an engine")?;
            Ok(choice)
        };
        let mut parts = self.knobs.iter().map(knob).collect::<Result<Vec<_>, Error>>()?;
        let config = Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?;
        config.refer(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &[&engine])?;
        if !parts.is_empty() {
            config.refer(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &parts.iter().collect::<Vec<_>>())?;
        }
        config.finalize("a configuration of an engine")?;
        parts.push(engine);
        Ok((config, parts))
    }
}

impl fmt::Display for Way {
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
    fn ways_survive_as_text() {
        for way in [Way { engine: 58, knobs: vec![(2, -1), (45, 0)] }, Way { engine: -1, knobs: vec![] }] {
            assert_eq!(Way::parse(&way.to_string()), Some(way));
        }
        for odd in ["", "x", "3 4", "3 4=", "3  4=1"] {
            assert_eq!(Way::parse(odd), None, "{odd:?}");
        }
    }
}
