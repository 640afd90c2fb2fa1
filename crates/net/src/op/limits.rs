//! How large a layer out of a file may be, so that no later sum over the network overflows.

use super::any::Op;
use super::shape::Shape;

/// Values of one sample's tensor.
const MOST_VALUES: u128 = 1 << 28;

/// Elements of one parameter.
const MOST_ELEMENTS: u128 = 1 << 36;

/// Multiply-adds of one layer and sample.
const MOST_MACS: u128 = 1 << 50;

impl Op {
    /// [`Op::output`] of a layer that a file describes: refuses sizes that no network has, too.
    pub fn output_within_limits(&self, x: &[Shape]) -> Result<Shape, String> {
        let y = self.output(x)?;
        let product = |sizes: &[usize]| sizes.iter().fold(1u128, |product, &n| product.saturating_mul(n as u128));
        let values = product(&[y.c, y.h, y.w]);
        if values == 0 || values > MOST_VALUES {
            return Err(format!("makes {values} values of one image; from 1 to {MOST_VALUES} are possible"));
        }
        let plane = product(&[y.h, y.w]);
        for parameter in self.params(x[0]) {
            let elements = product(&parameter.shape);
            if elements == 0 || elements > MOST_ELEMENTS || elements.saturating_mul(plane) > MOST_MACS {
                let (field, shape) = (parameter.field, &parameter.shape);
                return Err(format!("its {field} would have the shape {shape:?}, which is too large"));
            }
        }
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conv, Linear};

    #[test]
    fn sizes_that_no_network_has_are_refused() {
        let x = Shape::image(64, 32, 32);
        let output =
            |op: &Op, x| op.output_within_limits(&[x]).map_err(|why| why.contains("large") || why.contains("values"));
        assert_eq!(output(&Conv::new(8, 3).into(), x), Ok(Shape::image(8, 30, 30)));
        assert_eq!(output(&Conv::new(1 << 24, 3).into(), x), Err(true));
        assert_eq!(output(&Linear::new(1 << 24).into(), Shape::image(1 << 14, 64, 64)), Err(true));
        assert_eq!(output(&Linear::new(0).into(), x), Err(true));
    }
}
