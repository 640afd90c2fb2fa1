//! Filters that whiten patches, compared with PyTorch's eigenvectors (`golden/whiten.json`).

use loaders::ImageSpec;
use serde::Deserialize;
use training::train::init::whiten::Moments;

use support::numerics::{Formula, assert_close, golden};

#[derive(Deserialize)]
struct Golden {
    shape: [usize; 4],
    kernel: [usize; 2],
    images: Formula,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    filters: Vec<f64>,
}

#[test]
fn whitening_filters_equal_pytorchs() {
    let Golden { shape: [n, c, h, w], kernel, images, cases } = golden("whiten.json");
    let mut moments = Moments::new(kernel, ImageSpec::new(h as u32, w as u32, c as u32));
    moments.add_all(&images.noise_n(n * c * h * w));
    let patch = c * kernel[0] * kernel[1];
    let want = &cases[0].filters;
    assert_close("all filters", &moments.filters(2 * patch), want, 2e-6);
    // if fewer filters are requested, these have the largest eigenvalues
    let (first, negative) = (&want[..3 * patch], &want[patch * patch..(patch + 3) * patch]);
    assert_close("three and their negatives", &moments.filters(6), &[first, negative].concat(), 2e-6);
}
