//! Operations with one input that have neither parameters nor private memory.

use super::error::Error;
use super::memory::{DeviceMemory, TensorDesc};
use super::planned::{Gradients, Keeps, Pass, Planned};

type Forward<Buf> = dyn Fn(&Buf, &mut Buf);
type Backward<Buf> = dyn Fn(&Buf, &Buf, &mut Buf);

/// An operation with one input, planned for a fixed batch size.
pub struct Unary<B: DeviceMemory> {
    y: TensorDesc,
    tensors_for_backward: Keeps,
    forward: Box<Forward<B::Buf>>,
    backward: Box<Backward<B::Buf>>,
}

impl<B: DeviceMemory> Unary<B> {
    /// Plans an operation from its output's layout and its two passes. `forward(x, y)` writes y. `backward(x, dy, dx)`
    /// writes dx, and its x is empty unless `tensors_for_backward` includes the input.
    pub fn plan(
        y: TensorDesc,
        tensors_for_backward: Keeps,
        forward: impl Fn(&B::Buf, &mut B::Buf) + 'static,
        backward: impl Fn(&B::Buf, &B::Buf, &mut B::Buf) + 'static,
    ) -> Result<Box<dyn Planned<B>>, Error> {
        Ok(Box::new(Self { y, tensors_for_backward, forward: Box::new(forward), backward: Box::new(backward) }))
    }
}

impl<B: DeviceMemory> Planned<B> for Unary<B> {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn tensors_for_backward(&self) -> Keeps {
        self.tensors_for_backward
    }

    fn forward(&mut self, _: &Pass<'_, B>, x: &[&B::Buf], y: &mut B::Buf) -> Result<(), Error> {
        (self.forward)(x[0], y);
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, B>, mut g: Gradients<'_, B>) -> Result<(), Error> {
        if let Some(dx) = g.take_dx(0) {
            (self.backward)(g.x[0], g.dy, dx);
        }
        Ok(())
    }
}
