//! `init.whiten`: computes the weights of a first convolution that whitens small patches of the training images. The
//! fastest training programs for CIFAR-10 begin in this way (Page 2018, "How to train your ResNet"; Jordan 2024, arXiv
//! 2404.00498, section 3.1).
//!
//! The filters are the eigenvectors of the patches' second moments, divided by the square roots of their eigenvalues,
//! and the same filters with the opposite sign. So the outputs are uncorrelated and have equal variance.

use std::sync::Arc;

use backend::Backend;
use base::text::nearest;
use loaders::{EvalOrder, ImageSpec, Loader, SubsetOrder};
use net::{Conv, NetSpec, Op};

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::evaluate::spread;
use crate::train::plan::run::Run;
use crate::train::save::snapshot::share;

/// Added to each eigenvalue, as in Jordan's program.
const EPS: f64 = 5e-4;
/// Maximum number of images to use.
const IMAGES: u64 = 5000;
/// Maximum number of multiplications for the second moments. They take some seconds.
const WORK: u64 = 4_000_000_000;
/// Maximum number of values in a patch.
const PATCH: usize = 64;
const BATCH: usize = 100;

/// Returns an error if `layer` cannot be whitened.
pub fn check(net: &NetSpec, layer: &str) -> Result<(), Error> {
    find(net, layer).map(|_| ())
}

/// Sets the weights of the convolution `layer` on all ranks. Rank 0 reads the images. Collective. Returns an error on
/// all ranks if images cannot be read or the layer is not suitable.
pub fn apply<B: Backend>(session: &Session, run: &mut Run<B>, layer: &str) -> Result<(), Error> {
    session.agree(if session.is_root() { fill(run, layer) } else { Ok(()) })?;
    share(session, run)
}

fn fill<B: Backend>(run: &mut Run<B>, layer: &str) -> Result<(), Error> {
    let conv = find(run.graph.net(), layer)?.clone();
    let mut moments = Moments::new(conv.kernel, run.source.preprocess.output());
    let split = &run.source.train;
    let count = moments.images().min(split.len());
    let order = SubsetOrder::new(EvalOrder::new(count, BATCH, 0, 1), spread(count, split.len()).collect());
    let options = loaders::Options { open: 0, ..run.options };
    let mut loader = Loader::start(Arc::clone(split), run.source.preprocess.clone(), Box::new(order), options)?;
    while let Some(batch) = loader.next()? {
        moments.add_all(batch.images());
    }
    let weight = moments.filters(conv.out_channels);
    let name = format!("{layer}.weight");
    match run.graph.params().iter().position(|param| param.name == name) {
        Some(index) => Ok(run.graph.set_param(index, &weight)?),
        None => Err(Error::Usage(format!(
            "init.whiten = \"{layer}\": network {} has no parameter {name}",
            run.graph.net().name
        ))),
    }
}

/// Returns the layer, which must be a small convolution of the images.
fn find<'a>(net: &'a NetSpec, layer: &str) -> Result<&'a Conv, Error> {
    let refuse = |why: String| Err(Error::Usage(format!("init.whiten = \"{layer}\": {why}")));
    let first = |node: &&net::Node| node.inputs.as_slice() == [net.image()];
    let Some(node) = net.nodes.iter().find(|node| node.name == layer) else {
        let names: Vec<&str> = net.nodes.iter().filter(first).map(|node| node.name.as_str()).collect();
        let near = nearest(layer, &names).or(names.first().copied()).unwrap_or_default();
        return refuse(format!(
            "network {} has no such layer; name a convolution that reads the images, such as \"{near}\"",
            net.name
        ));
    };
    let Op::Conv(conv) = &node.op else {
        return refuse("this layer is not a convolution; name the first convolution of the network".into());
    };
    let width = net.input.c * conv.kernel[0] * conv.kernel[1];
    if !first(&node) {
        return refuse(
            "the input of this convolution is another layer, not the images; name the first convolution of the network"
                .into(),
        );
    }
    if conv.groups != 1 || conv.dilation != [1, 1] {
        return refuse(format!(
            "only a convolution without groups and dilation can be whitened; this one has groups = {} and dilation = {:?}",
            conv.groups, conv.dilation
        ));
    }
    if width > PATCH {
        return refuse(format!(
            "a patch of the image (channels x kernel height x kernel width) has {width} values, but at most {PATCH} can be whitened; use \
             a smaller kernel"
        ));
    }
    if conv.out_channels % 2 != 0 || conv.out_channels > 2 * width {
        return refuse(format!(
            "expected an even number of filters, at most {} (two for each value of a patch), got {}",
            2 * width,
            conv.out_channels
        ));
    }
    Ok(conv)
}

/// Second moments of image patches.
pub struct Moments {
    kernel: [usize; 2],
    input: ImageSpec,
    /// Sums of products between the values in a patch. Only the upper triangle is used.
    sums: Vec<f64>,
    patches: u64,
    patch: Vec<f64>,
}

impl Moments {
    /// Creates empty sums for patches of `kernel` (rows, columns) and images of shape `input`.
    pub fn new(kernel: [usize; 2], input: ImageSpec) -> Self {
        let width = input.channels as usize * kernel[0] * kernel[1];
        Self { kernel, input, sums: vec![0.0; width * width], patches: 0, patch: vec![0.0; width] }
    }

    fn width(&self) -> usize {
        self.patch.len()
    }

    /// Returns the number of kernel positions in an image: rows, columns.
    fn places(&self) -> [usize; 2] {
        let [height, width] = [self.input.height, self.input.width].map(|side| side as usize);
        [(height + 1).saturating_sub(self.kernel[0]), (width + 1).saturating_sub(self.kernel[1])]
    }

    /// Returns the number of images to use, so that the work stays below the limits.
    fn images(&self) -> u64 {
        let [rows, columns] = self.places();
        let each = (rows * columns * self.width() * self.width() / 2).max(1) as u64;
        (WORK / each).clamp(1, IMAGES)
    }

    /// Adds the patches in `images`, which has shape (N, C, H, W).
    pub fn add_all(&mut self, images: &[f32]) {
        images.chunks_exact(self.input.values()).for_each(|image| self.add(image));
    }

    /// Returns filters of shape (O, C, kh, kw) for O = `out_channels`, which must be even. The first half are the
    /// filters for the largest eigenvalues, the second half are the same filters with the opposite sign.
    pub fn filters(&self, out_channels: usize) -> Vec<f32> {
        let found = eigen(self.mean(), self.width());
        let half = || found.iter().take(out_channels / 2);
        let scaled = |sign: f64| {
            half().flat_map(move |Eigen { value, vector }| {
                let scale = sign / (value.max(0.0) + EPS).sqrt();
                vector.iter().map(move |x| (x * scale) as f32)
            })
        };
        scaled(1.0).chain(scaled(-1.0)).collect()
    }

    fn add(&mut self, image: &[f32]) {
        let [rows, columns] = self.places();
        for top in 0..rows {
            for left in 0..columns {
                self.add_patch(image, top, left);
            }
        }
        self.patches += (rows * columns) as u64;
    }

    fn add_patch(&mut self, image: &[f32], top: usize, left: usize) {
        let ([kh, kw], ImageSpec { height, width, channels }) = (self.kernel, self.input);
        let mut at = 0;
        for channel in 0..channels as usize {
            for row in 0..kh {
                let from = (channel * height as usize + top + row) * width as usize + left;
                image[from..from + kw].iter().for_each(|&x| {
                    self.patch[at] = f64::from(x);
                    at += 1;
                });
            }
        }
        let n = self.patch.len();
        for (i, &x) in self.patch.iter().enumerate() {
            let row = &mut self.sums[i * n + i..(i + 1) * n];
            row.iter_mut().zip(&self.patch[i..]).for_each(|(sum, y)| *sum += x * y);
        }
    }

    /// Returns the mean of the products as a full symmetric matrix.
    fn mean(&self) -> Vec<f64> {
        let n = self.width();
        let upper = |i: usize, j: usize| self.sums[i.min(j) * n + i.max(j)] / self.patches.max(1) as f64;
        (0..n * n).map(|k| upper(k / n, k % n)).collect()
    }
}

/// Maximum number of Jacobi sweeps. A matrix with 64 rows needs fewer than ten.
const SWEEPS: usize = 60;

/// An eigenvalue and its vector. The vector has length 1, and its largest component is positive.
#[derive(Clone, Debug, PartialEq)]
pub struct Eigen {
    pub value: f64,
    pub vector: Vec<f64>,
}

/// Returns eigenvalues and eigenvectors of a symmetric matrix with `n` rows, largest eigenvalue first. Uses Jacobi
/// rotations (Golub and Van Loan, Matrix Computations, 8.5). They are slow for large matrices but accurate to the last
/// bits for small ones.
pub fn eigen(mut a: Vec<f64>, n: usize) -> Vec<Eigen> {
    let mut v: Vec<f64> = (0..n * n).map(|i| f64::from(u8::from(i / n == i % n))).collect();
    for _ in 0..SWEEPS {
        let off: f64 = (0..n * n).filter(|i| i / n != i % n).map(|i| a[i] * a[i]).sum();
        let all: f64 = a.iter().map(|x| x * x).sum();
        if off <= all * 1e-30 {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut v, n, (p, q));
            }
        }
    }
    let mut found: Vec<Eigen> =
        (0..n).map(|k| oriented(a[k * n + k], (0..n).map(|i| v[i * n + k]).collect())).collect();
    found.sort_by(|x, y| y.value.total_cmp(&x.value));
    found
}

/// Makes element (p, q) of `a` zero by a rotation, and applies the rotation to `v`.
fn rotate(a: &mut [f64], v: &mut [f64], n: usize, (p, q): (usize, usize)) {
    let apq = a[p * n + q];
    if apq == 0.0 {
        return;
    }
    let tau = (a[q * n + q] - a[p * n + p]) / (2.0 * apq);
    let t = tau.signum() / (tau.abs() + tau.hypot(1.0));
    let c = 1.0 / t.hypot(1.0);
    let s = t * c;
    let turn = |m: &mut [f64], i: usize, j: usize| (m[i], m[j]) = (c * m[i] - s * m[j], s * m[i] + c * m[j]);
    for k in 0..n {
        turn(a, k * n + p, k * n + q);
        turn(v, k * n + p, k * n + q);
    }
    for k in 0..n {
        turn(a, p * n + k, q * n + k);
    }
}

fn oriented(value: f64, vector: Vec<f64>) -> Eigen {
    let largest = vector.iter().copied().max_by(|x, y| x.abs().total_cmp(&y.abs())).unwrap_or(1.0);
    Eigen { value, vector: vector.iter().map(|x| x * largest.signum()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_by_hand() {
        let [first, second] = eigen(vec![2.0, 1.0, 1.0, 2.0], 2).try_into().unwrap();
        let half = 0.5f64.sqrt();
        assert!((first.value - 3.0).abs() < 1e-14 && (second.value - 1.0).abs() < 1e-14);
        assert!(first.vector.iter().all(|x| (x - half).abs() < 1e-14), "{first:?}");
        assert!(second.vector.iter().sum::<f64>().abs() < 1e-14, "{second:?}");
    }

    /// Checks that A v = l v for each eigenvalue l of the matrix A and its vector v, and that the vectors are
    /// orthonormal, also for equal eigenvalues.
    #[test]
    fn values_and_vectors_of_larger_matrices() {
        for n in [1, 3, 12, 48] {
            let mut a = vec![0.0; n * n];
            for i in 0..n {
                for j in 0..=i {
                    let x = if i == j { 1.0 } else { ((i * 7 + j * 3) % 5) as f64 * 0.25 };
                    (a[i * n + j], a[j * n + i]) = (x, x);
                }
            }
            let found = eigen(a.clone(), n);
            assert!(found.windows(2).all(|pair| pair[0].value >= pair[1].value));
            for (k, Eigen { value, vector }) in found.iter().enumerate() {
                for (i, x) in vector.iter().enumerate() {
                    let product: f64 = (0..n).map(|j| a[i * n + j] * vector[j]).sum();
                    assert!((product - value * x).abs() < 1e-12, "{n} rows, value {k}");
                }
                for other in &found[k + 1..] {
                    let dot: f64 = vector.iter().zip(&other.vector).map(|(x, y)| x * y).sum();
                    assert!(dot.abs() < 1e-12);
                }
                let length: f64 = vector.iter().map(|x| x * x).sum();
                assert!((length - 1.0).abs() < 1e-12);
            }
        }
    }
}
