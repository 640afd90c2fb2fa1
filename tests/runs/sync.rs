//! Local SGD and EASGD with the real binary under `mpirun`: one model at the end, every step in the log, and invalid
//! settings. `train::strategy::tests` tests the update rules themselves.

use support::images::{DIGITS, THINGS};
use support::numerics::largest;
use support::program::{PATIENCE, events, files, logged, numbers, run, sets, signal};
use support::setting::Setting;
use support::weights::{model, values};

const RECIPE: &str = r#"
model = "lenet"
epochs = 3
seed = 5
batch = 12
optimizer.momentum = 0.9
optimizer.weight_decay = 1e-4
schedule.base_lr = 0.002
"#;

fn parameters(out: &str) -> Vec<f32> {
    values(&model(out).layers)
}

/// With 180 images, every rank has the same number of images in every step. The optimizer's slots are averaged with the
/// parameters, so synchronising in every step equals the allreduce of gradients, but synchronising only at the end does
/// not.
#[test]
fn local_1_is_allreduce_to_rounding() {
    let setting = Setting::new(RECIPE, DIGITS, [180, 61]);
    let out = |sync: &str, name: &str| setting.trained(name, 2, &sets(&[&format!("sync={sync}"), "epochs=1"]));
    let (together, every_step, never) = (out("allreduce", "a"), out("local(1)", "l"), out("local(1000)", "n"));
    let (want, got, other) = (parameters(&together), parameters(&every_step), parameters(&never));
    let off = |got: &[f32]| largest(got.iter().zip(&want).map(|(g, w)| f64::from(g - w)));
    assert!(off(&got) < 2e-5, "parameters differ by {}", off(&got));
    assert!(off(&other) > 1e-4, "without synchronisation, parameters must differ by more than {}", off(&other));
    setting.assert_losses_near("l", "a", 1e-5);
}

/// With 203 images and three ranks, the last batch has 11 images, so the ranks have different numbers of images. The
/// periods do not divide an epoch.
#[test]
fn ranks_that_synchronise_periodically_end_with_one_model() {
    let setting = Setting::new(RECIPE, DIGITS, [203, 61]);
    for (name, sync) in [("local", "local(4)"), ("easgd", "easgd(3, 0.3)")] {
        let set = ["--set", &format!("sync={sync}")];
        let (out, ended) = (setting.out(name), setting.train(name, 3, &set).succeeded());
        ended.says(&["note: ", &format!("sync = \"{sync}\""), "\"allreduce\""]);
        let steps = numbers(&out, "step", "step");
        assert!(
            steps.iter().copied().eq((1..=51).map(f64::from)),
            "{sync}: each step must be logged once and in order: {steps:?}"
        );
        setting.assert_learns(name, 10, 10, 0.8);
        let counts = files(&out);
        assert_eq!(counts.iter().filter(|f| f.ends_with(".h5")).count(), 4, "{sync}: {counts:?}");
        // the saved model has the logged scores
        let model = format!("{out}/model.h5");
        let eval = ["eval", &model, "--data", &setting.data, "--batch", "4", "--threads", "1", "--json"];
        let score = run(2, &eval).succeeded().json();
        let last = events(&out, "eval").pop().unwrap();
        for key in ["top1", "top5", "count"] {
            assert_eq!(score[key], last[key], "{sync}: {key}");
        }
        // a second run gives the same result
        let again = setting.trained(&format!("{name}-again"), 3, &set);
        let difference = largest(parameters(&again).iter().zip(parameters(&out)).map(|(a, b)| f64::from(a - b)));
        assert!(difference < 1e-6, "{sync}: {difference}");
    }
}

/// Local SGD with batch norm: the running statistics of the ranks are merged for the saved model. In the last batch, one
/// rank has no samples.
#[test]
fn batch_norm_and_an_empty_share() {
    let recipe = RECIPE.replace("lenet", "resnet20").replace("epochs = 3", "epochs = 1");
    let setting = Setting::new(&recipe, THINGS, [38, 61]);
    let out = setting.trained("bn", 3, &["--set", "sync=local(2)"]);
    assert_eq!(numbers(&out, "step", "step"), [1.0, 2.0, 3.0, 4.0]);
    assert!(parameters(&out).iter().all(|v| v.is_finite()));
    assert_eq!(numbers(&out, "eval", "count"), [61.0]);
}

/// If the weights of one rank become infinite or NaN between two synchronisations, all ranks end at the next
/// synchronisation or at the end of the epoch. The message and the log name the step with the bad loss, and the log also
/// has the steps before it.
#[test]
fn a_rank_that_diverges_ends_all() {
    let setting = Setting::new(RECIPE, DIGITS, [203, 61]);
    for (name, sync) in [("soon", "sync=local(5)"), ("late", "sync=local(1000)")] {
        let ended = setting.train(name, 2, &sets(&[sync, "schedule.base_lr=1e30"])).failed(1, &["step ", "not finite"]);
        let out = setting.out(name);
        let steps = events(&out, "step");
        let last = steps.last().expect("the step that diverged");
        assert!(last["loss"].is_null(), "{sync}: {last}");
        assert!(ended.stderr.contains(&format!("step {}", last["step"])), "{sync}: {last}: {}", ended.stderr);
        let numbered = numbers(&out, "step", "step").into_iter().eq((1..=steps.len()).map(|step| step as f64));
        assert!(numbered, "{sync}: each step must be logged once");
        assert_eq!(run(0, &["runs", &out, "--json"]).succeeded().json()["state"], "diverged", "{sync}");
    }
}

/// The ranks meet at the end of each epoch, however far away the next synchronisation is.
#[test]
fn a_signal_acts_at_the_end_of_the_epoch() {
    let setting = Setting::new(RECIPE, DIGITS, [96, 24]);
    let keys = ["--set", "sync=local(1000000)", "--set", "epochs=100000", "--set", "eval.every=1000"];
    let mut running = setting.start("out", 2, &keys);
    let out = setting.out("out");
    running.until("an epoch", || logged(&out, "\"step\":8,") > 0);
    signal(running.id() as i32, libc::SIGUSR1);
    running.wait(PATIENCE).failed(75, &["stopped after step"]);
    let last = numbers(&setting.out("out"), "checkpoint", "step").pop().unwrap();
    assert!(last % 8.0 == 0.0 && last < 400_000.0, "stopped after step {last}");
    let end = (last + 8.0).to_string();
    let more = [&keys[..], &["--resume", "auto", "--max-steps", &end]].concat();
    setting.train("out", 2, &more).succeeded();
    let steps = numbers(&setting.out("out"), "step", "step");
    assert!(steps.into_iter().eq((1..=last as u64 + 8).map(|step| step as f64)), "each step must be logged once");
}

#[test]
fn invalid_sync_settings_are_refused() {
    let setting = Setting::new(RECIPE, DIGITS, [40, 61]);
    for (keys, parts) in [
        (vec!["sync=local(0)"], vec!["sync=local(0)", "steps >= 1, got 0"]),
        (vec!["sync=gossip"], vec!["sync=gossip", "\"easgd(tau, alpha)\""]),
        (vec!["sync=local(2)", "workers=4"], vec!["sync", "4 workers on 2 ranks"]),
        (vec!["sync=local(2)", "sync_bn=true"], vec!["sync_bn", "local(2)", "remove one"]),
        (vec!["sync=local(2)", "reduce.codec=exact"], vec!["reduce.codec", "remove one"]),
        (vec!["sync=easgd(2, 0.6)"], vec!["sync", "at most 1 / ranks = 0.5"]),
    ] {
        setting.train("refused", 2, &sets(&keys)).failed(2, &parts);
    }
}
