//! Element-wise operations. The output has the layout of the first input, and the backward pass writes this input's
//! gradient over the output's gradient.

use crate::{DeviceMemory, Error, Gradients, Keeps, Pass, Planned, TensorDesc, Traffic};

type Buf<B> = <B as DeviceMemory>::Buf;
type Forward<B> = dyn Fn(&Pass<'_, B>, &[&Buf<B>], &mut Buf<B>) -> Result<(), Error>;
type Backward<B> = dyn Fn(&Pass<'_, B>, Gradients<'_, B>) -> Result<(), Error>;

/// An element-wise operation planned for a fixed batch size. It has no parameters and no private memory.
pub struct Elementwise<B: DeviceMemory> {
    x: TensorDesc,
    keeps: Keeps,
    traffic: Option<Traffic>,
    forward: Box<Forward<B>>,
    backward: Box<Backward<B>>,
}

impl<B: DeviceMemory> Elementwise<B> {
    /// Plans an operation from the layout of its first input and its two passes.
    pub fn plan(
        x: TensorDesc,
        keeps: Keeps,
        traffic: Option<Traffic>,
        forward: impl Fn(&Pass<'_, B>, &[&Buf<B>], &mut Buf<B>) -> Result<(), Error> + 'static,
        backward: impl Fn(&Pass<'_, B>, Gradients<'_, B>) -> Result<(), Error> + 'static,
    ) -> Result<Box<dyn Planned<B>>, Error> {
        Ok(Box::new(Self { x, keeps, traffic, forward: Box::new(forward), backward: Box::new(backward) }))
    }
}

impl<B: DeviceMemory> Planned<B> for Elementwise<B> {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn keeps(&self) -> Keeps {
        self.keeps
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        self.traffic
    }

    fn forward(&mut self, pass: &Pass<'_, B>, x: &[&B::Buf], y: &mut B::Buf) -> Result<(), Error> {
        (self.forward)(pass, x, y)
    }

    fn backward(&mut self, pass: &Pass<'_, B>, g: Gradients<'_, B>) -> Result<(), Error> {
        (self.backward)(pass, g)
    }
}
