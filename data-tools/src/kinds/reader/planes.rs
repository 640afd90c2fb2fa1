//! Pixels stored as planes, one for each channel.

use loaders::channels;

/// Planes of equal size to interleaved pixels, RGB or grey.
pub(crate) fn interleave(planes: &[u8], channels: usize, out: &mut Vec<u8>) {
    if channels != 3 {
        out.clear();
        return out.extend_from_slice(planes);
    }
    out.resize(planes.len() / 3 * 3, 0);
    channels::interleave(&planes[..out.len()], out.as_chunks_mut().0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_become_pixels() {
        let area = 35;
        let planes: Vec<u8> = (0..3 * area).map(|i| (i / area * 70 + i % 7) as u8).collect();
        let mut out = vec![9; 4];
        interleave(&planes, 3, &mut out);
        assert_eq!(out.len(), planes.len());
        for (i, pixel) in out.chunks_exact(3).enumerate() {
            let expected = [planes[i], planes[area + i], planes[2 * area + i]];
            assert_eq!(pixel, expected);
        }
        interleave(&planes[..area], 1, &mut out);
        assert_eq!(out, &planes[..area]);
    }
}
