//! Runs a graph on images of other sizes. Each size has its own plans over the same memory and parameters. The shapes
//! of the network's parameters must not depend on the size.

use std::collections::BTreeMap;

use backend::{Backend, Error, ParamFormat, Planned, TensorDesc};
use net::NetSpec;
use net::Shape;

use super::graph::{BuildError, Graph};
use super::plan::{Operations, SizePlans, facts, make_plan, param_specs};

impl<B: Backend> Graph<B> {
    /// Returns the current image size.
    pub fn input(&self) -> Shape {
        self.current_size.shapes[0]
    }

    /// Plans batches of `batch` images of a smaller size. The graph keeps its current size. Does nothing if this size
    /// is already planned.
    ///
    /// # Errors
    ///
    /// Returns an error if shapes of parameters or scores depend on the image size. Also returns an error if the plan
    /// does not fit into the graph's memory, for example because the images are larger.
    pub fn add_size(&mut self, input: Shape, batch: usize) -> Result<(), BuildError> {
        if self.input() == input || self.other_sizes.iter().any(|other| other.shapes[0] == input) {
            return Ok(());
        }
        let net = NetSpec { input, ..self.plan.net.clone() };
        let shapes = net.shapes()?;
        self.same_parameters(&net, &shapes)?;
        let (operations, descs) = self.plan_again(&net, &shapes, batch)?;
        self.other_sizes.push(SizePlans { shapes, descs, operations: BTreeMap::from([(batch, operations)]) });
        Ok(())
    }

    /// Plans another batch size or image size over the same memory and parameters.
    fn plan_again(
        &self,
        net: &NetSpec,
        shapes: &[Shape],
        batch: usize,
    ) -> Result<(Operations<B>, Vec<TensorDesc>), Error> {
        let first = Some((&*self.plan.formats(), &*self.current_size.descs));
        let (operations, descs) = make_plan(&*self.backend, net, shapes, batch, first, self.plan.trains)?;
        self.fits(&operations, &descs)?;
        Ok((operations, descs))
    }

    /// Plans a smaller batch over the same memory and parameters. Does nothing if this batch size is already planned.
    /// Returns an error if the batch is larger than the largest planned batch.
    pub fn prepare(&mut self, batch: usize) -> Result<(), Error> {
        let largest = self.current_size.operations.keys().next_back().copied().unwrap_or(0);
        if batch > largest {
            let expected = format!("a batch of at most {largest} images, for which the network was planned");
            return Err(Error::Size {
                op: format!("network {}", self.plan.net.name),
                expected,
                got: batch.to_string(),
            });
        }
        if batch > 0 && !self.current_size.operations.contains_key(&batch) {
            let (operations, _) = self.plan_again(&self.plan.net, &self.current_size.shapes, batch)?;
            self.current_size.operations.insert(batch, operations);
        }
        Ok(())
    }

    /// Changes the image size of the graph and its teacher from the next pass on. The sums of all earlier passes must
    /// have been read.
    ///
    /// # Errors
    ///
    /// Returns an error if the size is not planned.
    pub fn set_size(&mut self, input: Shape) -> Result<(), Error> {
        if self.input() != input {
            let sizes =
                std::iter::once(&self.current_size).chain(&self.other_sizes).map(|size| size.shapes[0].to_string());
            let expected = sizes.collect::<Vec<_>>().join(" or ");
            let Some(other) = self.other_sizes.iter_mut().find(|other| other.shapes[0] == input) else {
                return Err(Error::Size { op: "the images".into(), expected, got: input.to_string() });
            };
            std::mem::swap(&mut self.current_size, other);
        }
        let teacher = self.soft.as_mut().and_then(|soft| soft.teacher.as_mut());
        teacher.map_or(Ok(()), |teacher| teacher.set_size(input))
    }

    /// Returns an error if a parameter or the scores would have another shape.
    fn same_parameters(&self, net: &NetSpec, shapes: &[Shape]) -> Result<(), BuildError> {
        let refuse = |layer: &str, what: String| {
            let why = format!(
                "{what}, so the network accepts only images of {}; other sizes need a global pool before the first linear layer",
                self.plan.net.input
            );
            BuildError::Backend(Error::Unsupported { op: layer.into(), why })
        };
        let specs = param_specs(net, shapes);
        for (node, specs) in specs.iter().enumerate() {
            let own = self.plan.layout.params.iter().filter(|p| p.node == node);
            if let Some((own, spec)) = own.zip(specs).find(|(own, spec)| own.spec.shape != spec.shape) {
                let what = format!("{} would be {:?} for images of {}", own.name, spec.shape, net.input);
                return Err(refuse(&net.nodes[node].name, what));
            }
        }
        let last = net.scores().find(|scores| shapes[*scores] != self.current_size.shapes[*scores]);
        last.map_or(Ok(()), |scores| {
            let layer = &net.nodes[scores - 1].name;
            Err(refuse(
                layer,
                format!("the output of this layer would be {} for images of {}", shapes[scores], net.input),
            ))
        })
    }

    /// Returns an error if the plans need more memory than the graph has, or if they share memory or order parameters
    /// differently.
    fn fits(&self, operations: &Operations<B>, descs: &[TensorDesc]) -> Result<(), Error> {
        let Some(own) = self.current_size.largest() else { return Ok(()) };
        let of = |operations: &Operations<B>, descs: &[TensorDesc], node: usize| {
            facts(&*self.backend, operations[node].as_deref(), &descs[node + 1])
        };
        for (node, spec) in self.plan.net.nodes.iter().enumerate() {
            let [own, new] = [of(own, &self.current_size.descs, node), of(operations, descs, node)];
            let same_numbers = self.current_size.descs[node + 1].bf16 == descs[node + 1].bf16;
            if !own.covers(&new) || !same_numbers {
                let [of, largest] =
                    [descs[0], self.current_size.descs[0]].map(|d| format!("{} images of {}", d.n, d.shape));
                let why = format!("the memory that was planned for {largest} does not fit {of}");
                return Err(Error::Unsupported { op: spec.name.clone(), why });
            }
            self.same_order(node, operations)?;
        }
        Ok(())
    }

    /// Returns an error if a plan expects the parameters of this node in another order than they have in memory.
    fn same_order(&self, node: usize, operations: &Operations<B>) -> Result<(), Error> {
        let Some(new) = operations[node].as_deref().map(Planned::formats) else { return Ok(()) };
        let own = self.plan.layout.params.iter().filter(|p| p.node == node);
        for (own, new) in own.zip(&new) {
            if own.format != *new && !alike(&own.format, new, own.spec.elems())? {
                let why =
                    format!("this plan would store {} in another order than the plan of the largest batch", own.name);
                return Err(Error::Unsupported { op: self.plan.net.nodes[node].name.clone(), why });
            }
        }
        Ok(())
    }
}

/// Returns true if both formats store elements in the same order.
fn alike<F: ParamFormat>(one: &F, other: &F, elems: usize) -> Result<bool, Error> {
    if one.elems() != other.elems() {
        return Ok(false);
    }
    // Integers that f32 represents exactly. 0 is not used because it means padding.
    let plain: Vec<f32> = (0..elems).map(|i| (i % (1 << 23) + 1) as f32).collect();
    let mut packed = [one, other].map(|format| vec![0.0; format.elems()]);
    let [first, second] = &mut packed;
    one.pack(&plain, first)?;
    other.pack(&plain, second)?;
    Ok(first == second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores rows of `self.0` elements, each padded to 6. The second field only makes two equal layouts unequal
    /// values.
    #[derive(Clone, Debug, PartialEq)]
    struct Rows(usize, bool);

    impl ParamFormat for Rows {
        fn elems(&self) -> usize {
            12
        }

        fn pack(&self, plain: &[f32], packed: &mut [f32]) -> Result<(), Error> {
            plain
                .chunks(self.0)
                .zip(packed.chunks_mut(6))
                .for_each(|(from, to)| to[..from.len()].copy_from_slice(from));
            Ok(())
        }

        fn unpack(&self, _: &[f32], _: &mut [f32]) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn alike_compares_layouts_by_element_positions() {
        assert!(alike(&Rows(5, true), &Rows(5, false), 10).unwrap());
        assert!(!alike(&Rows(5, true), &Rows(6, true), 10).unwrap());
        assert!(!alike(&10usize, &11usize, 10).unwrap());
    }
}
