//! The gradient codecs on a GPU compared with those on the host: scales, encoded gradients and sums are bit-identical.

use std::ops::Range;

use backend::cuda::{Cuda, CudaBuf, Precision};
use backend::{Backend, Buffer, CodeFormat, CodeSpec, Collective, DeviceCodec, Queue};
use comm::codec;
use comm::codec::{Bucket, Codec, Key, Settings, Share, Tensor};

use crate::backend::{upload, values as elements};
use support::gpu::{alone, alone_with};
use support::numerics::noise;

const KEY: Key = Key { seed: 0x0123_4567_89ab_cdef, step: 41 };

fn tensor(parameter: u16, start: usize, elems: usize, exempt: bool) -> Tensor {
    Tensor { name: format!("p{parameter}"), parameter, range: start..start + elems, elems, exempt }
}

/// Returns a bucket with gaps between tensors of many lengths: shorter than a block of packed codes, whole blocks, single
/// elements, a tensor of zeros, a tensor that is exempt from the codec, and one that ends in padding.
fn bucket() -> Bucket {
    let tensors = vec![
        tensor(3, 0, 5_000, false),
        tensor(0, 5_000, 1, false),
        tensor(9, 5_008, 1_344, false),
        tensor(1, 6_400, 4_097, true),
        tensor(7, 10_500, 63, false),
        tensor(8, 10_600, 40, false),
        tensor(2, 10_700, 9_300, false),
        tensor(4, 20_000, 2, false),
        tensor(5, 20_002, 31, false),
        Tensor { elems: 1_999, ..tensor(6, 20_048, 2_048, false) },
    ];
    Bucket { len: 22_101, tensors }
}

/// Returns gradients of many magnitudes: both zeros, denormals, the largest and smallest numbers, a tensor of only
/// denormals, and one with equal elements.
fn gradients(worker: usize, step: u64) -> Vec<f32> {
    let mut g = noise(bucket().len, 10 + worker as u64 + 100 * step, 1.0);
    for (i, x) in g.iter_mut().enumerate() {
        *x *= 10f32.powi(-((i % 13) as i32));
    }
    let odd = [0.0, -0.0, f32::from_bits(1), -f32::from_bits(77), f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 0.5, -1.0];
    g[200..208].copy_from_slice(&odd);
    g[5_008] = f32::MAX / 64.0;
    g[10_500..10_563].iter_mut().enumerate().for_each(|(i, x)| *x = f32::from_bits(i as u32 + worker as u32));
    g[10_600..10_640].fill(if worker == 0 { 0.0 } else { -0.0 });
    g[20_002..20_033].fill(0.1);
    g[20_048 + 1_999..].fill(0.0);
    g
}

fn spec(name: &str, settings: &Settings) -> CodeSpec {
    (codec::find(name).expect("a codec").spec)(&bucket(), settings).expect("a spec")
}

fn host_codec(name: &str, settings: &Settings, workers: Range<usize>) -> Box<dyn Codec> {
    (codec::find(name).expect("a codec").make)(&bucket(), settings, workers)
}

fn gpu_codec(cuda: &Cuda, name: &str, settings: &Settings, workers: Range<usize>) -> Box<dyn DeviceCodec<Cuda>> {
    cuda.device_codec(&spec(name, settings), workers).unwrap().expect("a coder")
}

/// Returns the scales of the shares and encodes the shares.
fn encode(coder: &mut dyn DeviceCodec<Cuda>, shares: &mut [CudaBuf], key: Key) -> Vec<u32> {
    let mut scales = Vec::new();
    coder.begin(shares).unwrap();
    coder.measure(shares, &mut scales).unwrap();
    coder.encode(shares, &scales, key).unwrap();
    scales
}

/// Encodes, sums and decodes the workers' gradients on the host. Returns the scales and the decoded sum.
fn on_host(
    codec: &mut dyn Codec,
    bucket: &Bucket,
    workers: &[Vec<f32>],
    first: usize,
    key: Key,
) -> (Vec<u32>, Vec<f32>) {
    let mut workers = workers.to_vec();
    let shares = workers.iter_mut().enumerate();
    let mut shares: Vec<_> = shares.map(|(i, g)| Share { worker: first + i, gradients: g }).collect();
    let mut scales = Vec::new();
    codec.scales(bucket, &mut shares, &mut scales);
    codec.encode(bucket, &scales, &mut shares, key);
    let mut sum = shares.last().expect("a worker").gradients.to_vec();
    codec.decode(bucket, &scales, &mut sum);
    (scales, sum)
}

fn on_gpu(cuda: &Cuda, workers: &[Vec<f32>]) -> Vec<CudaBuf> {
    let one = |values: &Vec<f32>| {
        let mut buffer = upload(cuda, values);
        cuda.mark(&mut buffer).unwrap();
        buffer
    };
    workers.iter().map(one).collect()
}

/// Checks that the bits are equal. All NaN count as equal, because a GPU sum can return another NaN.
fn same(what: &str, got: &[f32], want: &[f32]) {
    let equal = |g: f32, w: f32| g.to_bits() == w.to_bits() || (g.is_nan() && w.is_nan());
    let wrong = (0..want.len()).find(|&i| !equal(got[i], want[i]));
    assert_eq!(wrong.map(|i| (i, got[i], want[i])), None, "{what}");
}

/// Decodes the packed elements from the summed words, in the order that [`CodeSpec`] documents, without the code under test.
fn unpacked(spec: &CodeSpec, words: &[u64], workers: usize, scales: &[u32], into: &mut [f32]) {
    let CodeFormat::Integers(whole) = &spec.format else { return };
    let mut words = words;
    for (part, scale) in whole.parts.iter().zip(scales).filter(|(part, _)| part.in_lanes) {
        let (own, rest) = words.split_at(part.range.len().div_ceil(whole.per_word));
        words = rest;
        let into = &mut into[part.range.clone()];
        for (own, into) in own.chunks(whole.block).zip(into.chunks_mut(whole.block * whole.per_word)) {
            for (i, x) in into.iter_mut().enumerate() {
                let lane = own[i % own.len()] >> ((i / own.len()) as u32 * whole.bits) & ((1 << whole.bits) - 1);
                let sum = lane as i64 - i64::from(whole.steps) * workers as i64;
                *x = if *scale == 0 { 0.0 } else { sum as f32 / whole.steps as f32 * f32::from_bits(*scale) };
            }
        }
    }
}

/// Codec, number of workers of this rank, clip, error feedback.
type Case = (&'static str, usize, f32, bool);

/// Cases with every codec. A recipe can choose each of these combinations.
const CASES: [Case; 12] = [
    ("exact", 1, 0.0, false),
    ("exact", 3, 2.5, false),
    ("bf16", 1, 0.0, false),
    ("bf16", 3, 0.0, true),
    ("int8", 1, 2.5, false),
    ("int8", 3, 2.5, false),
    ("ternary", 1, 0.0, false),
    ("ternary", 4, 0.0, false),
    ("ternary", 1, 2.5, false),
    ("ternary", 3, 1.0, false),
    ("ternary", 1, 2.5, true),
    ("ternary", 17, 2.5, true),
];

/// Compares scales, packed words, sums and residuals with the host over several steps.
fn assert_same_codes(cuda: &Cuda, (name, workers, clip, error_feedback): Case) {
    let bucket = bucket();
    let what = format!("{name}, {workers} workers, clip {clip}, feedback {error_feedback}");
    // all ranks together have three times the workers of this rank, but only this rank contributes gradients
    let settings = Settings { workers: 3 * workers, clip, error_feedback };
    let mine = 5..5 + workers;
    let mut host = host_codec(name, &settings, mine.clone());
    let (spec, mut coder) = (spec(name, &settings), gpu_codec(cuda, name, &settings, mine.clone()));
    for step in 0..3 {
        let (what, key) = (format!("{what}, step {step}"), Key { step: KEY.step + step, ..KEY });
        let values: Vec<_> = (0..workers).map(|worker| gradients(worker, step)).collect();
        let (want_scales, want) = on_host(host.as_mut(), &bucket, &values, mine.start, key);
        let mut shares = on_gpu(cuda, &values);
        let scales = encode(coder.as_mut(), &mut shares, key);
        assert_eq!(scales, want_scales, "{what}: scales");
        let codes = coder.codes();
        let elems: usize = bucket.tensors.iter().map(|t| t.range.len()).sum();
        let most = if name == "bf16" { bucket.len } else { elems };
        assert!(codes.integers.len() + codes.words.len() + codes.halves.len() <= most, "{what}: too many codes");
        let mut by_hand = want.clone();
        unpacked(&spec, codes.words, settings.workers, &scales, &mut by_hand);
        same(&format!("{what}: lanes"), &by_hand, &want);
        let last = shares.last_mut().expect("a worker");
        coder.decode(last).unwrap();
        same(&what, &elements(last), &want);
        for worker in mine.clone() {
            match (coder.residual(worker), host.residual(worker)) {
                (Some(got), Some(want)) => same(&format!("{what}: carried over by {worker}"), &elements(got), want),
                (got, want) => assert!(got.is_none() && want.is_none() && !error_feedback, "{what}"),
            }
        }
        assert!(coder.residual(mine.start - 1).is_none() && coder.residual(mine.end).is_none());
    }
    let carried = coder.residual(mine.start).map(|residual| elements(residual));
    assert_eq!(
        carried.is_some_and(|r| r.iter().any(|r| *r != 0.0)),
        error_feedback,
        "{what}: expected residuals only with error feedback"
    );
}

#[test]
fn a_gpu_codes_as_the_host_does() {
    let (_alone, cuda) = alone_with(Precision::F32);
    CASES.into_iter().for_each(|case| assert_same_codes(&cuda, case));
}

/// Creates an NCCL group with this GPU only.
fn group(cuda: &Cuda) -> Box<dyn Collective<Cuda>> {
    let ready = cuda.collectives().expect("NCCL").ready().unwrap();
    let id = ready.new_id().unwrap();
    let mut group = ready.join(&id, 0, 1).unwrap();
    while !group.is_ready().unwrap() {
        std::thread::yield_now();
    }
    group
}

/// If NCCL sums the encoded gradients, they are never copied to the host.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs NCCL")]
fn codes_added_by_a_group_match_the_host() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (mut group, bucket) = (group(&cuda), bucket());
    for (name, workers, clip, error_feedback) in CASES {
        let what = format!("{name} of {workers} workers, clip {clip}, error feedback {error_feedback}");
        let settings = Settings { workers, clip, error_feedback };
        let mut host = host_codec(name, &settings, 0..workers);
        let mut coder = gpu_codec(&cuda, name, &settings, 0..workers);
        for step in 0..2 {
            let values: Vec<Vec<f32>> = (0..workers).map(|worker| gradients(worker, step)).collect();
            let key = Key { step: KEY.step + step, ..KEY };
            let (scales, want) = on_host(host.as_mut(), &bucket, &values, 0, key);
            let mut shares = on_gpu(&cuda, &values);
            coder.sum_in(group.as_mut(), &mut shares, key).unwrap();
            same(&what, &elements(shares.last().expect("a worker")), &want);
            assert_eq!(coder.scales(key.step).unwrap(), scales, "{what}");
        }
    }
    // only the tensors whose scale is not finite become NaN
    let mut values = [gradients(0, 0)];
    values[0][6_401] = f32::INFINITY;
    values[0][19_998] = f32::NAN;
    for name in ["exact", "ternary"] {
        let settings = Settings { workers: 1, clip: 0.0, error_feedback: false };
        let mut coder = gpu_codec(&cuda, name, &settings, 0..1);
        let mut shares = on_gpu(&cuda, &values);
        coder.sum_in(group.as_mut(), &mut shares, Key { seed: 1, step: 2 }).unwrap();
        let sum = elements(&shares[0]);
        for (tensor, scale) in bucket.tensors.iter().zip(coder.scales(2).unwrap()) {
            let lost = [1, 2].contains(&tensor.parameter);
            assert_eq!(*scale >= f32::INFINITY.to_bits(), lost, "{name}: {}", tensor.name);
            assert!(sum[tensor.range.clone()].iter().all(|x| x.is_nan() == lost), "{name}: {}", tensor.name);
        }
    }
}

#[test]
fn residuals_can_be_set_and_read_on_the_gpu() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (bucket, settings) = (bucket(), Settings { workers: 2, clip: 2.5, error_feedback: true });
    for name in ["bf16", "ternary"] {
        let carried = noise(bucket.len, 3, 0.1);
        let mut host = host_codec(name, &settings, 1..2);
        host.residual(1).expect("worker 1 is here").copy_from_slice(&carried);
        let mut coder = gpu_codec(&cuda, name, &settings, 1..2);
        coder.residual(1).expect("worker 1 is here").write(0, &carried).unwrap();
        let values = [gradients(1, 0)];
        let (_, want) = on_host(host.as_mut(), &bucket, &values, 1, KEY);
        let mut shares = on_gpu(&cuda, &values);
        encode(coder.as_mut(), &mut shares, KEY);
        coder.decode(&mut shares[0]).unwrap();
        same(name, &elements(&shares[0]), &want);
    }
}

#[test]
fn what_is_not_finite_shows_in_the_scales() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let bucket = bucket();
    let settings = Settings { workers: 2, clip: 2.5, error_feedback: false };
    let mut values = [gradients(0, 0), gradients(1, 0)];
    values[1][4_999] = f32::NEG_INFINITY;
    values[0][6_401] = -f32::NAN;
    values[1][19_999] = f32::INFINITY;
    values[0][19_998] = f32::NAN;
    for name in ["exact", "int8", "ternary"] {
        let mut coder = gpu_codec(&cuda, name, &settings, 0..2);
        let (mut shares, mut scales) = (on_gpu(&cuda, &values), Vec::new());
        coder.begin(&shares).unwrap();
        coder.measure(&mut shares, &mut scales).unwrap();
        let infinity = f32::INFINITY.to_bits();
        assert!(scales[0] == infinity && scales[3] > infinity && scales[6] > infinity, "{name}: {scales:?}");
        assert!([1, 2, 4, 5].iter().all(|&i| scales[i] < infinity), "{name}: {scales:?}");
    }
    // bf16 has no scales: values that are not finite reach the sum, but must not spoil the residuals
    values[0][3] = f32::from_bits(0x7f80_0001);
    for error_feedback in [false, true] {
        let settings = Settings { workers: 1, error_feedback, ..settings };
        let mut host = host_codec("bf16", &settings, 0..1);
        let want = on_host(host.as_mut(), &bucket, &values[..1], 0, KEY).1;
        let mut coder = gpu_codec(&cuda, "bf16", &settings, 0..1);
        let mut shares = on_gpu(&cuda, &values[..1]);
        coder.begin(&shares).unwrap();
        coder.encode(&mut shares, &[], Key { seed: 1, step: 2 }).unwrap();
        coder.decode(&mut shares[0]).unwrap();
        same("bf16", &elements(&shares[0]), &want);
        if let (Some(got), Some(want)) = (coder.residual(0), host.residual(0)) {
            same("carried over", &elements(got), want);
            assert!(want.iter().all(|r| r.is_finite()));
        }
    }
}

#[test]
fn every_codec_except_float_has_a_gpu_version() {
    let _alone = alone();
    for entry in codec::CATALOGUE {
        for (clip, error_feedback) in [(0.0, false), (2.5, false), (0.0, true), (2.5, true)] {
            let spec = (entry.spec)(&bucket(), &Settings { workers: 2, clip, error_feedback });
            assert_eq!(spec.is_none(), entry.name == "float", "{}", entry.name);
        }
    }
}
