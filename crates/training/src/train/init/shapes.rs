//! Shapes of tensors in a file beside those of the network: dimensions of 1 make no difference between them.

/// Whether shapes are equal but for dimensions of 1: a linear layer is a convolution of one pixel, and networks write either.
pub fn alike(one: &[usize], other: &[usize]) -> bool {
    one.iter().filter(|&&d| d != 1).eq(other.iter().filter(|&&d| d != 1))
}

/// For how many classes a tensor of a classifier is whose shape is `own` in the network and `other` in the file; none where more than their
/// number differs. Dimensions of 1 make no difference.
pub fn classes(own: &[usize], other: &[usize]) -> Option<usize> {
    let large = |shape: &[usize]| shape.iter().copied().filter(|&d| d != 1).collect::<Vec<usize>>();
    let (one, other) = (large(own.get(1..)?), large(other));
    match &other[..] {
        [classes, each @ ..] if each == one => Some(*classes),
        each if each == one => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_of_one_do_not_count() {
        assert!(alike(&[10, 64], &[10, 64, 1, 1]) && !alike(&[10, 64], &[64, 10]));
        assert_eq!(classes(&[10, 64], &[5, 64, 1, 1]), Some(5));
        assert_eq!(classes(&[10], &[1, 5]), Some(5));
        assert_eq!(classes(&[10, 64, 1, 1], &[1, 5, 64]), Some(5));
        assert_eq!(classes(&[10, 64], &[1, 64]), Some(1));
        assert_eq!([classes(&[10, 64], &[5, 32]), classes(&[10, 64], &[64, 5])], [None, None]);
    }
}
