//! The codecs on a card against those on the host: the same scales, the same codes, the same sums, bit for bit.

#[path = "support/numerics.rs"]
mod numerics;

use numerics::{cuda, noise};
use trireme::backend::cuda::{Cuda, CudaBuf, Precision};
use trireme::backend::{Backend, Buffer, Coding, Draw};
use trireme::comm::codec::{self, Bucket, Codec, Key, Settings, Share, Tensor};

const KEY: Key = Key { seed: 0x0123_4567_89ab_cdef, step: 41 };

fn tensor(parameter: u16, start: usize, elems: usize, exempt: bool) -> Tensor {
    Tensor { name: format!("p{parameter}"), parameter, range: start..start + elems, elems, exempt }
}

/// Tensors of many lengths with gaps between: part of a block of lanes, whole ones, single elements, zeros, an exempt one.
fn bucket() -> Bucket {
    let tensors = vec![
        tensor(3, 0, 5_000, false),
        tensor(0, 5_000, 1, false),
        tensor(9, 5_008, 1_344, false),
        tensor(1, 6_400, 4_097, true),
        tensor(7, 10_500, 63, false),
        tensor(8, 10_600, 40, false),
        tensor(2, 10_700, 9_300, false),
    ];
    Bucket { len: 20_010, tensors }
}

/// Gradients of all sizes: both zeros, denormals, the largest and smallest, one tensor of denormals alone.
fn gradients(worker: usize) -> Vec<f32> {
    let mut g = noise(bucket().len, 10 + worker as u64, 1.0);
    for (i, x) in g.iter_mut().enumerate() {
        *x *= 10f32.powi(-((i % 13) as i32));
    }
    let odd = [0.0, -0.0, f32::from_bits(1), -f32::from_bits(77), f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 0.5, -1.0];
    g[200..208].copy_from_slice(&odd);
    g[5_008] = f32::MAX / 64.0;
    g[10_500..10_563].iter_mut().enumerate().for_each(|(i, x)| *x = f32::from_bits(i as u32 + worker as u32));
    g[10_600..10_640].fill(if worker == 0 { 0.0 } else { -0.0 });
    g
}

/// One step on the host: scales and the sum.
fn on_host(codec: &mut dyn Codec, bucket: &Bucket, workers: &[Vec<f32>], first: usize) -> (Vec<u32>, Vec<f32>) {
    let mut workers = workers.to_vec();
    let shares = workers.iter_mut().enumerate();
    let mut shares: Vec<_> = shares.map(|(i, g)| Share { worker: first + i, gradients: g }).collect();
    let mut scales = Vec::new();
    codec.scales(bucket, &mut shares, &mut scales);
    codec.encode(bucket, &scales, &mut shares, KEY);
    let mut sum = shares.last().expect("a worker").gradients.to_vec();
    codec.decode(bucket, &scales, &mut sum);
    (scales, sum)
}

fn on_card(cuda: &Cuda, workers: &[Vec<f32>]) -> Vec<CudaBuf> {
    let one = |values: &Vec<f32>| {
        let mut buffer = cuda.alloc(values.len()).unwrap();
        buffer.write(0, values).unwrap();
        cuda.mark(&mut buffer).unwrap();
        buffer
    };
    workers.iter().map(one).collect()
}

fn same(what: &str, got: &[f32], want: &[f32]) {
    let wrong = (0..want.len()).find(|&i| got[i].to_bits() != want[i].to_bits());
    assert_eq!(wrong.map(|i| (i, got[i], want[i])), None, "{what}");
}

/// The elements of lanes in the order that [`Coding`] tells, from the words alone.
fn unpacked(coding: &Coding, words: &[u64], workers: usize, scales: &[u32], into: &mut [f32]) {
    let Coding::Whole(whole) = coding else { return };
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

#[test]
fn a_card_codes_as_the_host_does() {
    let Some(cuda) = cuda(Precision::F32) else { return };
    let bucket = bucket();
    for (name, workers) in
        [("exact", 1), ("exact", 3), ("bf16", 1), ("int8", 1), ("int8", 3), ("ternary", 1), ("ternary", 4)]
    {
        let entry = codec::find(name).expect("a codec");
        let settings = Settings { workers, clip: 0.0, error_feedback: false };
        let first = 5;
        let values: Vec<_> = (0..workers).map(gradients).collect();
        let mut host = (entry.make)(&bucket, &settings, first..first + workers);
        let (want_scales, want) = on_host(host.as_mut(), &bucket, &values, first);
        let coding = (entry.coding)(&bucket, &settings).expect("a coding");
        let mut coder = cuda.coder(&coding).unwrap().expect("a coder");
        // what a step leaves behind is nothing to the next
        for step in 0..2 {
            let mut shares = on_card(&cuda, &values);
            let mut scales = Vec::new();
            coder.begin(&shares).unwrap();
            coder.measure(&shares, &mut scales).unwrap();
            assert_eq!(scales, want_scales, "{name}, {workers} workers: scales");
            coder.encode(&shares, &scales, Draw { seed: KEY.seed, step: KEY.step, worker: first }).unwrap();
            let codes = coder.codes();
            let elems: usize = bucket.tensors.iter().map(|t| t.range.len()).sum();
            let most = if name == "bf16" { bucket.len } else { elems };
            assert!(codes.integers.len() + codes.words.len() + codes.halves.len() <= most, "{name} sends too much");
            let mut by_hand = want.clone();
            unpacked(&coding, codes.words, workers, &scales, &mut by_hand);
            same(&format!("{name}, {workers} workers: lanes"), &by_hand, &want);
            let last = shares.last_mut().expect("a worker");
            coder.decode(last).unwrap();
            let mut got = vec![0.0; bucket.len];
            last.read(0, &mut got).unwrap();
            same(&format!("{name}, {workers} workers, step {step}"), &got, &want);
        }
    }
}

#[test]
fn what_is_not_finite_shows_in_the_scales() {
    let Some(cuda) = cuda(Precision::F32) else { return };
    let bucket = bucket();
    let settings = Settings { workers: 2, clip: 0.0, error_feedback: false };
    let mut values = [gradients(0), gradients(1)];
    values[1][4_999] = f32::NEG_INFINITY;
    values[0][6_401] = -f32::NAN;
    values[1][19_999] = f32::INFINITY;
    values[0][19_998] = f32::NAN;
    for name in ["exact", "int8", "ternary"] {
        let coding = (codec::find(name).expect("a codec").coding)(&bucket, &settings).expect("a coding");
        let mut coder = cuda.coder(&coding).unwrap().expect("a coder");
        let (shares, mut scales) = (on_card(&cuda, &values), Vec::new());
        coder.begin(&shares).unwrap();
        coder.measure(&shares, &mut scales).unwrap();
        let infinity = f32::INFINITY.to_bits();
        assert!(scales[0] == infinity && scales[3] > infinity && scales[6] > infinity, "{name}: {scales:?}");
        assert!([1, 2, 4, 5].iter().all(|&i| scales[i] < infinity), "{name}: {scales:?}");
    }
    // bf16 has no scales: they travel
    let settings = Settings { workers: 1, ..settings };
    let entry = codec::find("bf16").expect("a codec");
    values[0][3] = f32::from_bits(0x7f80_0001);
    let want = on_host((entry.make)(&bucket, &settings, 0..1).as_mut(), &bucket, &values[..1], 0).1;
    let coding = (entry.coding)(&bucket, &settings).expect("a coding");
    let mut coder = cuda.coder(&coding).unwrap().expect("a coder");
    let mut shares = on_card(&cuda, &values[..1]);
    coder.begin(&shares).unwrap();
    coder.encode(&shares, &[], Draw { seed: 1, step: 2, worker: 0 }).unwrap();
    coder.decode(&mut shares[0]).unwrap();
    let mut got = vec![0.0; bucket.len];
    shares[0].read(0, &mut got).unwrap();
    same("bf16", &got, &want);
}

#[test]
fn what_the_host_must_keep_is_left_to_it() {
    let bucket = bucket();
    let coding = |name: &str, clip: f32, error_feedback: bool| {
        let settings = Settings { workers: 2, clip, error_feedback };
        (codec::find(name).expect("a codec").coding)(&bucket, &settings)
    };
    assert_eq!(coding("float", 0.0, false), None);
    assert_eq!(coding("bf16", 0.0, true), None);
    assert_eq!(coding("ternary", 2.5, false), None);
    assert_eq!(coding("ternary", 0.0, true), None);
    assert!(coding("ternary", 0.0, false).is_some() && coding("int8", 2.5, false).is_some());
}
