//! Recorded passes. An error in the pass itself is returned. If the driver does not record a pass, it is enqueued call
//! by call, and the log says so once.

use backend::cuda::Precision;
use backend::{Buffer, DeviceMemory, Error, Queue};
use loaders::ImageSpec;

use crate::recipe;
use support::gpu::{self, NOT_RECORDED, REFUSAL, alone_with, assert_recorded};
use support::setting::Setting;

fn setting() -> Setting {
    let keys = r#"
model = "lenet"
epochs = 1
seed = 7
batch = 4
precision = "bf16"
deterministic = true
"#;
    Setting::new(&recipe(keys, 0.01, r#""normalize""#, ""), ImageSpec::new(8, 8, 3), [20, 8])
}

#[test]
fn an_error_within_a_recorded_pass_is_returned_and_ends_the_recording() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (mut x, mut y) = (cuda.alloc(100).unwrap(), cuda.alloc(100).unwrap());
    x.write(0, &[1.0; 100]).unwrap();
    let mut values = [0.0; 100];
    // in five rounds, the pass is enqueued, fails while it is recorded, is enqueued again, recorded, and replayed
    for round in 0..5 {
        let mut calls = 0;
        let ended = cuda.repeat("the test's pass", 1, &mut || {
            calls += 1;
            cuda.add(&mut y, &x)?;
            let wrong = || Error::Size { op: "the test".into(), expected: "nothing".into(), got: "this".into() };
            if round == 1 { Err(wrong()) } else { Ok(()) }
        });
        assert_eq!(calls, usize::from(round < 4), "round {round}: the pass must be called once, also after an error");
        match ended {
            Err(Error::Size { got, .. }) => assert!(round == 1 && got == "this", "round {round}"),
            ended => assert!(ended.is_ok() && round != 1, "round {round}: {ended:?}"),
        }
        y.read(0, &mut values).unwrap();
        // round 1 has not added anything, because its recording failed
        let want = if round == 0 { 1.0 } else { round as f32 };
        assert_eq!(values, [want; 100], "round {round}");
    }
    assert_recorded(&cuda);
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_failed_recording_is_reported_once_and_changes_nothing() {
    let setting = setting();
    let run = |out: &str, variables: &[(&str, &str)]| gpu::train(&setting, out, 1, &[], variables).succeeded();
    run("recorded", &[]);
    let ended = ["cuStreamEndCapture", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"];
    for (part, words) in [
        ("call", &["cudnnBackendExecute for conv1", ended[0], ended[1]][..]),
        ("end", &ended[..]),
        ("graph", &["cuGraphInstantiateWithFlags", "CUDA_ERROR_OUT_OF_MEMORY"][..]),
    ] {
        let ended = run(part, &[(REFUSAL, part)]);
        let said: Vec<&str> = ended.stderr.lines().filter(|line| line.contains(NOT_RECORDED)).collect();
        assert_eq!(said.len(), 1, "{part}:\n{}", ended.stderr);
        for &piece in ["note: the step", "doctor"].iter().chain(words) {
            assert!(said[0].contains(piece), "{part}: no {piece:?} in {}", said[0]);
        }
        assert_eq!(setting.digest(part), setting.digest("recorded"), "{part}");
    }
    // `eval` on two ranks prints the note once per rank
    let args = ["eval", &setting.folder.at("recorded/model.h5"), "--data", &setting.data, "--batch", "1"];
    let mut eval = support::program::trireme(2, &[&args[..], &["--device", "cuda", "--share-gpu"]].concat());
    let scored = gpu::run({
        eval.env(REFUSAL, "end");
        eval
    });
    for rank in 0..2 {
        let parts = [&format!("rank {rank}: note: ")[..], "scoring pass", NOT_RECORDED];
        let notes = scored.stderr.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        assert_eq!(notes.count(), 1, "{}", scored.stderr);
    }
}

/// A GPU that fails while a pass is recorded ends the run. Nothing else is tried on it.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_gpu_that_fails_while_it_records_ends_the_run() {
    let setting = setting();
    for call in ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"] {
        let variables = [("TRIREME_EMULATED_FAULT", &*format!("{call}:700")), (REFUSAL, "none")];
        let ended = gpu::train(&setting, call, 1, &[], &variables);
        let said = ended.failed(1, &["kernel has failed", call, "CUDA_ERROR_ILLEGAL_ADDRESS"]).stderr;
        assert!(!said.contains(NOT_RECORDED), "{said}");
    }
}
