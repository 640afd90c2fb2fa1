//! Progressive resizing: the size of training images in each epoch, and their transforms.

use backend::Backend;
use engine::Graph;
use engine::graph::BuildError;
use loaders::Pipeline;
use loaders::transform::scaled;
use net::Shape;

use crate::error::Error;
use crate::train::plan::division::Division;
use crate::train::plan::network::shape_of;

/// A range of epochs in which the training images have the same size.
pub struct Phase {
    /// First epoch of the phase, starting at 0.
    pub from: u32,
    /// Transforms from a record to an input.
    pub augment: Pipeline,
}

/// All phases in the order of their epochs. Empty if the size never changes.
#[derive(Default)]
pub struct Phases(Vec<Phase>);

impl Phases {
    /// Creates the phases. `sizes` has pairs of a first epoch and the shorter side of the images, as in
    /// `augment.sizes`. `full` is the pipeline at full size and `list` has its transforms. `make` builds a pipeline
    /// from a list. Returns an error if a side is larger than the side of `full`, or if the scaled transforms do not
    /// make images with this side, for example because the list sets no size.
    pub fn new(
        sizes: &[[u32; 2]],
        list: &[String],
        full: &Pipeline,
        make: impl Fn(&[String]) -> Result<Pipeline, Error>,
    ) -> Result<Self, Error> {
        let refuse = |why: String| Error::Usage(format!("augment.sizes: {why}"));
        let whole = full.output().height.min(full.output().width);
        let phase = |&[from, side]: &[u32; 2]| {
            if side > whole {
                return Err(refuse(format!(
                    "the transforms in augment.train make images of {}, which are smaller than {side} pixels; use sizes of at most \
                     {whole}, or larger sizes in augment.train and augment.eval",
                    full.output()
                )));
            }
            let list = scaled(list, whole, side).map_err(|why| refuse(format!("augment.train: {why}")))?;
            let augment = make(&list)?;
            let made = augment.output();
            if made.height.min(made.width) != side {
                return Err(refuse(format!(
                    "for images of {side} pixels, the sizes in augment.train are multiplied by {side} / {whole}, but then augment.train \
                     makes images of {made}. Give augment.train a last transform that sets the size of the images, such as \
                     center_crop(size)"
                )));
            }
            Ok(Phase { from, augment })
        };
        Ok(Self(sizes.iter().map(phase).collect::<Result<_, _>>()?))
    }

    /// Keeps only the first phase, for all epochs.
    pub fn keep_first(&mut self) {
        self.0.truncate(1);
    }

    fn at(&self, epoch: u32) -> Option<&Phase> {
        self.0.iter().rfind(|phase| phase.from <= epoch)
    }

    /// Returns the transforms of an epoch, or `None` if the size never changes.
    pub fn augment(&self, epoch: u32) -> Option<&Pipeline> {
        self.at(epoch).map(|phase| &phase.augment)
    }

    /// Returns true if the image size changes at this epoch.
    pub fn begins(&self, epoch: u32) -> bool {
        self.0.iter().skip(1).any(|phase| phase.from == epoch)
    }

    /// Returns the epoch at which the phase of `epoch` ends, if another phase follows.
    pub fn end(&self, epoch: u32) -> Option<u32> {
        self.0.iter().map(|phase| phase.from).find(|from| *from > epoch)
    }

    /// Plans the graph for the image sizes of all phases. Its current size does not change.
    pub fn plan<B: Backend>(&self, graph: &mut Graph<B>, division: &Division) -> Result<(), Error> {
        let (largest, sizes) = (division.largest(), division.sizes());
        self.0.iter().try_for_each(|phase| plan_size(graph, phase.input(), largest, sizes.clone(), named))
    }

    pub fn describe(&self) -> Option<String> {
        let each = self.0.iter().map(|phase| format!("{} from epoch {} on", phase.augment.output(), phase.from));
        (!self.0.is_empty()).then(|| each.collect::<Vec<_>>().join(", "))
    }
}

/// Plans the graph for another image size and these batch sizes, of which `largest` is the maximum. The graph's current
/// size does not change. `named` adds the recipe key to an error. Returns an error if the shape of a parameter depends
/// on the image size, or if the images are larger than the graph's input.
pub fn plan_size<B: Backend>(
    graph: &mut Graph<B>,
    input: Shape,
    largest: usize,
    batches: Vec<usize>,
    named: impl Fn(BuildError) -> Error,
) -> Result<(), Error> {
    let before = graph.input();
    graph.add_size(input, largest).map_err(named)?;
    graph.set_size(input)?;
    batches.into_iter().try_for_each(|size| graph.prepare(size))?;
    Ok(graph.set_size(before)?)
}

impl Phase {
    fn input(&self) -> Shape {
        shape_of(self.augment.output())
    }
}

/// Adds the recipe key to an error.
fn named(error: BuildError) -> Error {
    Error::Usage(format!("augment.sizes: {error}"))
}
