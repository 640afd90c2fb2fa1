//! Weights of a linear layer in panels. A panel has [`PANEL`] outputs next to each other for each input, with the
//! inputs in memory order. Missing outputs of the last panel are zero.

use crate::TensorDesc;

/// Outputs of a panel: the lanes of two AVX2 registers.
pub const PANEL: usize = 16;

/// The layout of weights (outputs, inputs) for images in a given layout. The number of images does not matter.
#[derive(Clone, Debug, PartialEq)]
pub struct Panels {
    outputs: usize,
    image: TensorDesc,
}

impl Panels {
    /// Creates the layout. The block size must divide the channel count of `image`.
    pub fn new(outputs: usize, image: &TensorDesc) -> Self {
        Self { outputs, image: TensorDesc { n: 1, ..*image } }
    }

    /// Describes the layout for messages.
    pub fn describe(&self) -> String {
        let TensorDesc { n: _, shape, block, bf16 } = self.image;
        let number = if bf16 { "bf16" } else { "f32" };
        format!("panels for {} outputs from {shape} in {number}, blocks of {block} channels", self.outputs)
    }

    /// Returns the number of elements in memory.
    pub fn elems(&self) -> usize {
        self.outputs.next_multiple_of(PANEL) * self.image.sample_elems()
    }

    /// Returns the number of elements without padding.
    pub fn plain_elems(&self) -> usize {
        self.outputs * self.image.shape.elems()
    }

    /// Calls `copy(offset in plain order, offset in panels)` for every element. In plain order, inputs are ordered by
    /// C, H, W.
    pub fn pairs(&self, mut copy: impl FnMut(usize, usize)) {
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
}

#[cfg(test)]
mod tests {
    use net::Shape;

    use super::super::layout::Format;
    use super::*;
    use crate::ParamFormat;

    #[test]
    fn panels_have_16_outputs_per_input_in_the_order_of_the_image() {
        let image = TensorDesc { n: 3, shape: Shape::image(16, 2, 3), block: 8, bf16: false };
        let (panels, inputs) = (Panels::new(20, &image), 96);
        assert_eq!((panels.elems(), panels.plain_elems()), (32 * inputs, 20 * inputs));
        let plain: Vec<f32> = (1..=20 * inputs).map(|i| i as f32).collect();
        let mut packed = vec![0.0; panels.elems()];
        let format = Format::Panels(panels);
        format.pack(&plain, &mut packed).unwrap();
        // Output 17 is in the second panel, channel 9 in the second block. The pixel is in row 1, column 2.
        let input = (6 + 5) * 8 + 1;
        assert_eq!(packed[(inputs + input) * PANEL + 1], plain[17 * inputs + 9 * 6 + 5]);
        assert!((0..inputs).all(|input| packed[(inputs + input) * PANEL..][4..PANEL].iter().all(|w| *w == 0.0)));
        let mut back = vec![0.0; plain.len()];
        format.unpack(&packed, &mut back).unwrap();
        assert_eq!(back, plain);
    }
}
