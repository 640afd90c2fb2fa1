//! Pixels stored as planes, one for each channel.

/// Planes of equal size to interleaved pixels, RGB or grey.
pub(crate) fn interleave(planes: &[u8], channels: usize, out: &mut Vec<u8>) {
    out.clear();
    if channels != 3 {
        return out.extend_from_slice(planes);
    }
    let (red, rest) = planes.split_at(planes.len() / 3);
    let (green, blue) = rest.split_at(red.len());
    out.resize(3 * red.len(), 0);
    let pixels = out.as_chunks_mut::<3>().0;
    for (((pixel, &r), &g), &b) in pixels.iter_mut().zip(red).zip(green).zip(blue) {
        *pixel = [r, g, b];
    }
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
