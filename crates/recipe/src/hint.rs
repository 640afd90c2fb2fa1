//! Help for words that no recipe has: the nearest one, or ours for a word of PyTorch, Keras or timm.

use loaders::text::{did_you_mean, nearest};

use super::{done_here, elsewhere};
use super::keys::{KEYS, Key};

/// The equivalent of another program's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// A key of the recipe.
    Key(&'static str),
    /// A sentence that explains how to get the same effect.
    Sentence(&'static str),
}

/// Returns a hint for an unknown key. Tries these in order: the equivalent of another program's setting, the same key in another section,
/// the most similar path, and a path with a similar last word.
pub fn of_key(path: &str) -> String {
    match here(path) {
        Some(Here::Key(ours)) => return format!("; here it is \"{ours}\""),
        Some(Here::Sentence(text)) => return format!("; {text}"),
        None => {}
    }
    if let Some(key) = of_same_name(path) {
        return format!("; did you mean \"{}\"?", key.path);
    }
    let paths: Vec<&str> = KEYS.iter().map(|key| key.path.as_str()).collect();
    let near = did_you_mean(path, &paths);
    if !near.is_empty() {
        return near;
    }
    let lasts: Vec<&str> = KEYS.iter().map(|key| key.field.name).collect();
    let word = path.rsplit('.').next().unwrap_or(path);
    // of two or three letters half may differ, which is no slip
    nearest(word, &lasts)
        .filter(|_| word.chars().count() > 3)
        .and_then(|found| KEYS.iter().find(|key| key.field.name == found))
        .map(|key| format!("; did you mean \"{}\"?", key.path))
        .unwrap_or_else(|| "; `trireme train --help` lists the keys of a recipe".into())
}

/// Finds a key with the same last word as `path`, in any section.
fn of_same_name(path: &str) -> Option<&'static Key> {
    let word = plain(last_word(path));
    KEYS.iter().find(|key| plain(key.field.name) == word)
}

/// Returns the equivalent of an unknown key, if another program has this key.
pub fn here(path: &str) -> Option<Here> {
    let whole = plain(path);
    let of_path = elsewhere::PATHS.iter().find(|(theirs, _)| plain(theirs) == whole).map(|(_, ours)| *ours);
    let word = plain(last_word(path));
    let is_named = |words: &str| words.split_whitespace().any(|theirs| plain(theirs) == word);
    let sentence = || done_here::SENTENCES.iter().find(|(words, _)| is_named(words));
    of_path
        .or_else(|| translated(path, elsewhere::KEYS))
        .map(Here::Key)
        .or_else(|| sentence().map(|(_, text)| Here::Sentence(text)))
}

/// Returns the equivalent of an unknown command-line option. For `--lr` it is the key `schedule.base_lr`.
pub fn of_option(option: &str) -> Option<Here> {
    let word = option.trim_start_matches('-').replace('-', "_");
    // in other programs these options set the number of processes that load images
    if ["workers", "j"].contains(&word.as_str()) {
        return Some(Here::Key("loader.threads"));
    }
    let key = |found: Option<&'static Key>| found.map(|key| Here::Key(&key.path));
    key(KEYS.iter().find(|key| key.path == word)).or_else(|| here(&word)).or_else(|| key(of_same_name(&word)))
}

/// Help for an unknown transform.
pub fn of_transform(name: &str, known: &[&str]) -> String {
    match translated(name, elsewhere::TRANSFORMS) {
        Some(ours) => format!("; here it is \"{ours}\""),
        None => did_you_mean(name, known),
    }
}

/// Help for an unknown kind of optimizer or schedule.
pub fn of_kind(word: &str) -> Option<&'static str> {
    translated(word, elsewhere::KINDS)
}

/// Our word for one from elsewhere, whatever its case and its `-` and `_`.
fn translated(word: &str, table: &[(&str, &'static str)]) -> Option<&'static str> {
    let word = plain(last_word(word));
    table.iter().find(|(theirs, _)| plain(theirs) == word).map(|(_, ours)| *ours)
}

fn last_word(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn plain(word: &str) -> String {
    word.to_lowercase().replace(['-', '_'], "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    /// Each word leads to something that exists.
    #[test]
    fn ours_exist() {
        for (theirs, ours) in elsewhere::KEYS.iter().chain(elsewhere::PATHS) {
            assert!(keys::find(ours).is_some(), "{theirs} -> {ours}");
        }
        let names = loaders::transform::names();
        for (theirs, ours) in elsewhere::TRANSFORMS {
            assert!(names.contains(&ours.split('(').next().unwrap()), "{theirs} -> {ours}");
        }
        let kinds = ["schedule", "optimizer"].map(|section| {
            let key = keys::find(&format!("{section}.kind")).unwrap();
            key.field.value_type.words().unwrap_or_default()
        });
        for (theirs, ours) in elsewhere::KINDS {
            assert!(kinds.iter().any(|words| words.contains(&format!("\"{ours}\""))), "{theirs} -> {ours}: {kinds:?}");
        }
    }

    #[test]
    fn words_from_elsewhere() {
        assert_eq!(of_key("lr"), "; here it is \"schedule.base_lr\"");
        assert_eq!(of_key("optimizer.learning-rate"), "; here it is \"schedule.base_lr\"");
        assert_eq!(of_key("optimiser"), "; here it is \"optimizer.kind\"");
        assert_eq!(of_key("optimizer.momentun"), "; did you mean \"optimizer.momentum\"?");
        assert_eq!(of_transform("RandomHorizontalFlip", &["flip"]), "; here it is \"flip\"");
        assert_eq!(of_transform("filp", &["flip"]), "; did you mean \"flip\"?");
        assert_eq!(of_kind("OneCycleLR"), Some("one_cycle"));
        assert_eq!(of_key("foo"), "; `trireme train --help` lists the keys of a recipe");
        assert_eq!(of_key("early_stopping"), "; here it is \"stop.patience\"");
        assert_eq!(of_key("swa"), "; here it is \"ema.swa_start\"");
        assert_eq!(of_key("monitor"), "; here it is \"checkpoint.best_by\"");
        assert_eq!(of_option("--epochs"), Some(Here::Key("epochs")));
        assert_eq!(of_option("--weight-decay"), Some(Here::Key("optimizer.weight_decay")));
        assert_eq!(of_option("--workers"), Some(Here::Key("loader.threads")));
        assert_eq!(of_option("--banana"), None);
        assert_eq!(of_key("loader.workers"), "; here it is \"loader.threads\"");
        assert_eq!(of_key("momentum"), "; did you mean \"optimizer.momentum\"?");
        assert!(of_key("schedule.step_size").contains("schedule.milestones = [30, 60, 90]"));
        assert!(of_key("num_classes").contains("is that of the data set"));
        assert!(of_key("init.weights").contains("\"init.from\""));
    }

    const TORCHVISION: &str = "data-path model device batch-size epochs workers opt lr momentum weight-decay norm-weight-decay \
        bias-weight-decay transformer-embedding-decay label-smoothing mixup-alpha cutmix-alpha lr-scheduler lr-warmup-epochs \
        lr-warmup-method lr-warmup-decay lr-step-size lr-gamma lr-min print-freq output-dir resume start-epoch cache-dataset sync-bn \
        test-only auto-augment ra-magnitude augmix-severity random-erase amp world-size dist-url model-ema model-ema-steps \
        model-ema-decay use-deterministic-algorithms interpolation val-resize-size val-crop-size train-crop-size clip-grad-norm \
        ra-sampler ra-reps weights backend use-v2";
    const TIMM: &str = "data-dir dataset train-split val-split train-num-samples val-num-samples dataset-download \
        dataset-trust-remote-code class-map input-img-mode input-key target-key model pretrained pretrained-path initial-checkpoint \
        resume no-resume-opt num-classes gp img-size in-chans input-size crop-pct mean std interpolation batch-size \
        validation-batch-size channels-last fuser grad-accum-steps grad-checkpointing fast-norm model-kwargs head-init-scale \
        head-init-bias torchcompile-mode torchscript torchcompile device amp amp-dtype amp-impl model-dtype no-ddp-bb \
        synchronize-step local-rank device-modules opt opt-eps opt-betas momentum weight-decay clip-grad clip-mode layer-decay \
        opt-kwargs sched sched-on-updates lr lr-base lr-base-size lr-base-scale lr-noise lr-noise-pct lr-noise-std lr-cycle-mul \
        lr-cycle-decay lr-cycle-limit lr-k-decay warmup-lr min-lr epochs epoch-repeats start-epoch decay-milestones decay-epochs \
        warmup-epochs warmup-prefix cooldown-epochs patience-epochs decay-rate no-aug train-crop-mode scale ratio hflip vflip \
        color-jitter color-jitter-prob grayscale-prob gaussian-blur-prob aa aug-repeats aug-splits jsd-loss bce-loss bce-sum \
        bce-target-thresh bce-pos-weight reprob remode recount resplit mixup cutmix cutmix-minmax mixup-prob mixup-switch-prob \
        mixup-mode mixup-off-epoch smoothing train-interpolation drop drop-connect drop-path drop-block bn-momentum bn-eps sync-bn \
        dist-bn split-bn model-ema model-ema-force-cpu model-ema-decay model-ema-warmup seed worker-seeding log-interval \
        recovery-interval checkpoint-hist workers save-images pin-mem no-prefetcher output experiment eval-metric tta \
        use-multi-epochs-loader log-wandb wandb-project wandb-tags wandb-resume-id";
    const KERAS: &str = "x y batch_size epochs verbose callbacks validation_split validation_data shuffle class_weight sample_weight \
        initial_epoch steps_per_epoch validation_steps validation_batch_size validation_freq optimizer loss metrics loss_weights \
        weighted_metrics run_eagerly steps_per_execution jit_compile auto_scale_loss learning_rate weight_decay clipnorm clipvalue \
        global_clipnorm use_ema ema_momentum ema_overwrite_frequency loss_scale_factor gradient_accumulation_steps beta_1 beta_2 \
        epsilon amsgrad nesterov rho momentum decay_steps decay_rate monitor patience min_delta mode baseline restore_best_weights \
        start_from_epoch save_best_only save_weights_only save_freq filepath factor cooldown min_lr image_size color_mode label_mode \
        rescale rotation_range horizontal_flip vertical_flip zoom_range initial_learning_rate weights";
    const LIGHTNING: &str = "accelerator strategy devices num_nodes precision logger callbacks fast_dev_run max_epochs min_epochs \
        max_steps min_steps max_time limit_train_batches limit_val_batches limit_test_batches limit_predict_batches overfit_batches \
        val_check_interval check_val_every_n_epoch num_sanity_val_steps log_every_n_steps enable_checkpointing enable_progress_bar \
        enable_model_summary accumulate_grad_batches gradient_clip_val gradient_clip_algorithm deterministic benchmark inference_mode \
        use_distributed_sampler profiler detect_anomaly barebones plugins sync_batchnorm reload_dataloaders_every_n_epochs \
        default_root_dir ckpt_path auto_lr_find auto_scale_batch_size stopping_threshold";

    /// Every option of these programs matches a key or has a sentence.
    #[test]
    fn every_option_of_other_programs_has_an_answer() {
        let all = [TORCHVISION, TIMM, KERAS, LIGHTNING].into_iter().flat_map(str::split_whitespace);
        let lost: Vec<&str> = all.filter(|option| of_option(option).is_none()).collect();
        assert_eq!(lost, [""; 0]);
        for word in
            "mixup_alpha ra_sampler auto_augment random_erase clip_grad_norm grad_accum pretrained device out resume"
                .split(' ')
        {
            assert!(here(word).is_some(), "{word}");
        }
    }
}
