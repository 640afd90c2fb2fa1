//! Help for words that no recipe has: the nearest one, or ours for a word of PyTorch, Keras or timm.

use loaders::nearest::{did_you_mean, nearest};

use super::keys::KEYS;

/// Names of settings elsewhere (PyTorch, Keras, timm, spellings), and what to give here. Case, `-` and `_` do not count.
const KEYS_ELSEWHERE: &[(&str, &str)] = &[
    ("lr", "schedule.base_lr"),
    ("learning_rate", "schedule.base_lr"),
    ("initial_learning_rate", "schedule.base_lr"),
    ("lr_scheduler", "schedule.kind"),
    ("scheduler", "schedule.kind"),
    ("sched", "schedule.kind"),
    ("lr_schedule", "schedule.kind"),
    ("warmup", "schedule.warmup_epochs"),
    ("warmup_lr", "schedule.warmup_from"),
    ("lr_milestones", "schedule.milestones"),
    ("decay_milestones", "schedule.milestones"),
    ("lr_gamma", "schedule.gamma"),
    ("decay_rate", "schedule.gamma"),
    ("opt", "optimizer.kind"),
    ("optim", "optimizer.kind"),
    ("optimiser", "optimizer.kind"),
    ("wd", "optimizer.weight_decay"),
    ("decay", "optimizer.weight_decay"),
    ("clip_grad", "optimizer.clip_norm"),
    ("clipnorm", "optimizer.clip_norm"),
    ("clipvalue", "optimizer.clip_value"),
    ("max_grad_norm", "optimizer.clip_norm"),
    ("agc", "optimizer.clip_agc"),
    ("adaptive_clipping", "optimizer.clip_agc"),
    ("sam", "optimizer.sam_rho"),
    ("rho", "optimizer.sam_rho"),
    ("max_lr", "schedule.base_lr"),
    ("t_0", "schedule.cycle_epochs"),
    ("t_mult", "schedule.cycle_factor"),
    ("cooldown_epochs", "schedule.cooldown"),
    ("min_lr", "schedule.end_lr"),
    ("eta_min", "schedule.end_lr"),
    ("batch_size", "batch"),
    ("bs", "batch"),
    ("b", "batch"),
    ("num_epochs", "epochs"),
    ("n_epochs", "epochs"),
    ("max_epochs", "epochs"),
    ("num_steps", "steps"),
    ("total_steps", "steps"),
    ("train_steps", "steps"),
    ("iterations", "steps"),
    ("max_iter", "steps"),
    ("arch", "model"),
    ("network", "model"),
    ("net", "model"),
    ("data_dir", "data"),
    ("data_path", "data"),
    ("dataset", "data"),
    ("smoothing", "label_smoothing"),
    ("amp", "precision"),
    ("dtype", "precision"),
    ("mixed_precision", "precision"),
    ("num_workers", "loader.threads"),
    ("workers_per_rank", "loader.threads"),
    ("random_seed", "seed"),
    ("model_ema", "ema.decay"),
    ("model_ema_decay", "ema.decay"),
    ("ema_decay", "ema.decay"),
    ("swa", "ema.swa_start"),
    ("swa_epoch_start", "ema.swa_start"),
    ("early_stopping", "stop.patience"),
    ("early_stopping_patience", "stop.patience"),
    ("patience", "stop.patience"),
    ("patience_epochs", "schedule.patience"),
    ("target_accuracy", "stop.target"),
    ("stopping_threshold", "stop.target"),
    ("monitor", "checkpoint.best_by"),
    ("eval_metric", "checkpoint.best_by"),
    ("metric_for_best_model", "checkpoint.best_by"),
    ("save_best", "checkpoint.best_by"),
    ("eval_interval", "eval.every"),
    ("eval_freq", "eval.every"),
    ("eval_every", "eval.every"),
    ("check_val_every_n_epoch", "eval.every"),
    ("limit_val_batches", "eval.limit"),
    ("tta", "eval.flip"),
    ("ten_crop", "eval.corners"),
    ("compression", "reduce.codec"),
    ("sync_batchnorm", "sync_bn"),
    ("transforms", "augment.train"),
    ("augmentation", "augment.train"),
    ("progressive_resizing", "augment.sizes"),
    ("resolution", "augment.sizes"),
];

/// Transforms elsewhere, and ours.
const TRANSFORMS_ELSEWHERE: &[(&str, &str)] = &[
    ("horizontal_flip", "flip"),
    ("random_horizontal_flip", "flip"),
    ("hflip", "flip"),
    ("random_flip", "flip"),
    ("random_vertical_flip", "vertical_flip"),
    ("vflip", "vertical_flip"),
    ("resized_crop", "random_resized_crop(224)"),
    ("random_rotation", "rotation(15)"),
    ("random_affine", "affine(10)"),
    ("random_perspective", "perspective(0.5)"),
    ("random_invert", "invert"),
    ("random_autocontrast", "autocontrast"),
    ("random_equalize", "equalize"),
    ("random_posterize", "posterize(4)"),
    ("random_solarize", "solarize(128)"),
    ("random_adjust_sharpness", "sharpness(2)"),
    ("random_grayscale", "grayscale(0.1)"),
    ("randaugment", "rand_augment(2, 9)"),
    ("trivial_augment_wide", "trivial_augment"),
    ("autoaugment", "auto_augment(imagenet)"),
    ("aug_mix", "augmix"),
    ("to_tensor", "normalize"),
    ("rescaling", "normalize"),
    ("normalization", "normalize"),
    ("standardize", "normalize"),
];

/// Kinds of schedules and optimizers elsewhere, and the nearest that there is here.
const KINDS_ELSEWHERE: &[(&str, &str)] = &[
    ("multistep", "step"),
    ("multi_step_lr", "step"),
    ("step_lr", "step"),
    ("cosine_annealing_lr", "cosine"),
    ("cosine_annealing", "cosine"),
    ("cosine_decay", "cosine"),
    ("one_cycle_lr", "one_cycle"),
    ("one_cycle_policy", "one_cycle"),
    ("cosine_annealing_warm_restarts", "warm_restarts"),
    ("sgdr", "warm_restarts"),
    ("reduce_lr_on_plateau", "plateau"),
    ("plateau_lr", "plateau"),
    ("cosine_restarts", "warm_restarts"),
    ("cosine_with_restarts", "warm_restarts"),
    ("exponential_lr", "exponential"),
    ("exponential_decay", "exponential"),
    ("poly", "polynomial"),
    ("polynomial_lr", "polynomial"),
    ("linear", "polynomial"),
    ("constant_lr", "constant"),
    ("momentum", "sgd"),
    ("nesterov", "sgd"),
    ("adam_w", "adamw"),
];

/// Help for an unknown key: the word of ours for one from elsewhere, else the nearest path, else the path that ends in the same word.
pub fn of_key(path: &str) -> String {
    if let Some(ours) = translated(path, KEYS_ELSEWHERE) {
        return format!("; here it is \"{ours}\"");
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

/// The key that an option of the command line would be, were it one: `--lr` is `schedule.base_lr`.
pub fn key_of_option(option: &str) -> Option<&'static str> {
    let word = option.trim_start_matches('-').replace('-', "_");
    let same = KEYS.iter().find(|key| key.path == word || key.field.name == word);
    translated(&word, KEYS_ELSEWHERE).or_else(|| same.map(|key| key.path.as_str()))
}

/// Help for an unknown transform.
pub fn of_transform(name: &str, known: &[&str]) -> String {
    match translated(name, TRANSFORMS_ELSEWHERE) {
        Some(ours) => format!("; here it is \"{ours}\""),
        None => did_you_mean(name, known),
    }
}

/// Help for an unknown kind of optimizer or schedule.
pub fn of_kind(word: &str) -> Option<&'static str> {
    translated(word, KINDS_ELSEWHERE)
}

/// Our word for one from elsewhere, whatever its case and its `-` and `_`.
fn translated(word: &str, table: &[(&str, &'static str)]) -> Option<&'static str> {
    let plain = |word: &str| word.to_lowercase().replace(['-', '_'], "");
    let word = plain(word.rsplit('.').next().unwrap_or(word));
    table.iter().find(|(theirs, _)| plain(theirs) == word).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::keys;

    /// Each word leads to something that exists.
    #[test]
    fn ours_exist() {
        for (theirs, ours) in KEYS_ELSEWHERE {
            assert!(keys::find(ours).is_some(), "{theirs} -> {ours}");
        }
        let names = loaders::transform::names();
        for (theirs, ours) in TRANSFORMS_ELSEWHERE {
            assert!(names.contains(&ours.split('(').next().unwrap()), "{theirs} -> {ours}");
        }
        let kinds = ["schedule", "optimizer"].map(|section| {
            let key = keys::find(&format!("{section}.kind")).unwrap();
            key.field.value_type.words().unwrap_or_default()
        });
        for (theirs, ours) in KINDS_ELSEWHERE {
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
        assert_eq!(key_of_option("--epochs"), Some("epochs"));
        assert_eq!(key_of_option("--weight-decay"), Some("optimizer.weight_decay"));
        assert_eq!(key_of_option("--banana"), None);
    }
}
