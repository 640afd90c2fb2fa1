//! Weights of a linear layer in panels: [`PANEL`] outputs side by side for each input, one input after the other as they lie in memory,
//! then the next panel. What is missing of the last panel's outputs is zero.

use crate::TensorDesc;

/// Outputs of a panel: two registers of AVX2.
pub const PANEL: usize = 16;

/// Weights (outputs, inputs) of a layer over such images, of which the number does not count.
#[derive(Clone, Debug, PartialEq)]
pub struct Panels {
    outputs: usize,
    image: TensorDesc,
}

impl Panels {
    /// Over images without padding between their channels.
    pub fn new(outputs: usize, image: &TensorDesc) -> Self {
        Self { outputs, image: TensorDesc { n: 1, ..*image } }
    }

    /// Elements in memory.
    pub fn elems(&self) -> usize {
        self.outputs.next_multiple_of(PANEL) * self.image.sample_elems()
    }

    /// Elements without padding.
    pub fn plain_elems(&self) -> usize {
        self.outputs * self.image.shape.elems()
    }

    /// Calls `copy` with every element's place in plain order, inputs in the order C, H, W, and its place here.
    fn pairs(&self, mut copy: impl FnMut(usize, usize)) {
        let (c, plane, inputs) = (self.image.shape.c, self.image.shape.plane(), self.image.sample_elems());
        for output in 0..self.outputs {
            for channel in 0..c {
                for place in 0..plane {
                    let plain = (output * c + channel) * plane + place;
                    let input = self.image.at(channel, place);
                    copy(plain, (output / PANEL * inputs + input) * PANEL + output % PANEL);
                }
            }
        }
    }

    /// Copies from plain order; padding stays as it is.
    pub fn pack(&self, plain: &[f32], packed: &mut [f32]) {
        self.pairs(|from, to| packed[to] = plain[from]);
    }

    /// Copies to plain order.
    pub fn unpack(&self, packed: &[f32], plain: &mut [f32]) {
        self.pairs(|to, from| plain[to] = packed[from]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Shape;

    #[test]
    fn outputs_lie_side_by_side_and_inputs_as_the_image_has_them() {
        let image = TensorDesc { n: 3, shape: Shape::image(16, 2, 3), block: 8, bf16: false };
        let (panels, inputs) = (Panels::new(20, &image), 96);
        assert_eq!((panels.elems(), panels.plain_elems()), (32 * inputs, 20 * inputs));
        let plain: Vec<f32> = (1..=20 * inputs).map(|i| i as f32).collect();
        let mut packed = vec![0.0; panels.elems()];
        panels.pack(&plain, &mut packed);
        // output 17, channel 9, row 1, column 2: of the second panel, block, register lane
        let input = (6 + 5) * 8 + 1;
        assert_eq!(packed[(inputs + input) * PANEL + 1], plain[17 * inputs + 9 * 6 + 5]);
        assert!((0..inputs).all(|input| packed[(inputs + input) * PANEL..][4..PANEL].iter().all(|w| *w == 0.0)));
        let mut back = vec![0.0; plain.len()];
        panels.unpack(&packed, &mut back);
        assert_eq!(back, plain);
    }
}
