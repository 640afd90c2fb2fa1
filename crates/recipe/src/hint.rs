//! Hints for unknown keys and values: the most similar name, or the equivalent of a setting of PyTorch, Keras or timm.

use base::text::{did_you_mean, nearest};

use super::keys::{KEYS, Key};

/// The equivalent of another program's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equivalent {
    Key(&'static str),
    /// A sentence that explains how to get the same effect.
    Sentence(&'static str),
}

/// Returns a hint for an unknown key. Uses the first that exists of: the equivalent of another program's setting, a key with the same last
/// word in another section, the most similar path, a key with a similar last word, and a reference to the help.
pub fn of_key(path: &str) -> String {
    match equivalent(path) {
        Some(Equivalent::Key(ours)) => return format!("; trireme calls it \"{ours}\""),
        Some(Equivalent::Sentence(text)) => return format!("; {text}"),
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
    let word = last_word(path);
    // For a word of up to three letters, `nearest` accepts two wrong letters. Such a word is probably not a typo.
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

/// Returns the equivalent of an unknown key if it is a setting of another program.
pub fn equivalent(path: &str) -> Option<Equivalent> {
    let word = last_word(path);
    let key = find(path, PATHS).or_else(|| find(word, FOREIGN_KEYS));
    key.map(Equivalent::Key).or_else(|| find(word, SENTENCES).map(Equivalent::Sentence))
}

/// Returns the equivalent of an unknown command-line option. For `--lr` it is the key `schedule.base_lr`.
pub fn of_option(option: &str) -> Option<Equivalent> {
    let word = option.trim_start_matches('-').replace('-', "_");
    // in other programs the options `--workers` and `-j` set the number of processes that load images
    if ["workers", "j"].contains(&word.as_str()) {
        return Some(Equivalent::Key("loader.threads"));
    }
    let key = |found: Option<&'static Key>| found.map(|key| Equivalent::Key(&key.path));
    key(KEYS.iter().find(|key| key.path == word)).or_else(|| equivalent(&word)).or_else(|| key(of_same_name(&word)))
}

/// Returns a hint for an unknown transform.
pub fn of_transform(name: &str) -> String {
    match find(last_word(name), TRANSFORMS) {
        Some(ours) => format!("; trireme calls it \"{ours}\""),
        None => did_you_mean(name, &loaders::transform::names()),
    }
}

/// Returns the equivalent for an unknown kind of optimizer or schedule.
pub fn of_kind(word: &str) -> Option<&'static str> {
    find(last_word(word), KINDS)
}

/// Looks up another program's name. Case, `-` and `_` do not matter.
fn find(name: &str, table: &[(&str, &'static str)]) -> Option<&'static str> {
    let name = plain(name);
    let has_name = |words: &str| words.split_whitespace().any(|theirs| plain(theirs) == name);
    table.iter().find(|(words, _)| has_name(words)).map(|(_, ours)| *ours)
}

fn last_word(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn plain(word: &str) -> String {
    word.to_lowercase().replace(['-', '_'], "")
}

// Names of settings in PyTorch, torchvision's reference script, timm, Keras and Lightning, separated by spaces, with their equivalents in
// trireme.

/// Other programs' names and spellings of settings, with the equivalent recipe key.
const FOREIGN_KEYS: &[(&str, &str)] = &[
    ("lr learning_rate initial_learning_rate max_lr lr_base", "schedule.base_lr"),
    ("lr_scheduler scheduler sched lr_schedule", "schedule.kind"),
    ("warmup lr_warmup_epochs", "schedule.warmup_epochs"),
    ("warmup_lr lr_warmup_decay", "schedule.warmup_from"),
    ("lr_milestones decay_milestones", "schedule.milestones"),
    ("lr_gamma decay_rate lr_cycle_decay factor", "schedule.gamma"),
    ("opt optim optimiser", "optimizer.kind"),
    ("wd decay", "optimizer.weight_decay"),
    ("clip_grad clipnorm max_grad_norm clip_grad_norm global_clipnorm gradient_clip_val", "optimizer.clip_norm"),
    ("clipvalue", "optimizer.clip_value"),
    ("agc adaptive_clipping", "optimizer.clip_agc"),
    ("sam rho", "optimizer.sam_rho"),
    ("t_0", "schedule.cycle_epochs"),
    ("t_mult lr_cycle_mul", "schedule.cycle_factor"),
    ("cooldown_epochs", "schedule.cooldown"),
    ("min_lr eta_min lr_min", "schedule.end_lr"),
    ("batch_size bs b", "batch"),
    ("num_epochs n_epochs max_epochs", "epochs"),
    ("max_steps num_steps total_steps train_steps iterations max_iter", "steps"),
    ("arch network net", "model"),
    ("data_dir data_path dataset image_dataset", "data"),
    ("smoothing", "label_smoothing"),
    ("amp dtype mixed_precision amp_dtype model_dtype half fp16 bf16", "precision"),
    ("num_workers workers_per_rank", "loader.threads"),
    ("random_seed worker_seeding", "seed"),
    ("model_ema model_ema_decay ema_decay model_ema_steps use_ema ema_momentum", "ema.decay"),
    ("swa swa_epoch_start swa_lrs", "ema.swa_start"),
    ("early_stopping early_stopping_patience patience", "stop.patience"),
    ("patience_epochs", "schedule.patience"),
    ("target_accuracy stopping_threshold", "stop.target"),
    ("monitor eval_metric metric_for_best_model save_best restore_best_weights save_best_only", "checkpoint.best_by"),
    ("eval_interval eval_freq eval_every check_val_every_n_epoch validation_freq val_check_interval", "eval.every"),
    ("limit_val_batches validation_steps", "eval.limit"),
    ("tta", "eval.flip"),
    ("ten_crop", "eval.corners"),
    ("compression", "reduce.codec"),
    ("sync_batchnorm dist_bn", "sync_bn"),
    ("ghost_batch_size virtual_batch_size", "bn_group"),
    ("transforms augmentation input_size train_transforms rotation_range", "augment.train"),
    ("progressive_resizing resolution", "augment.sizes"),
    ("transformer_embedding_decay layer_decay", "optimizer.groups"),
    ("mixup_alpha mixup", "mix.mixup"),
    ("cutmix_alpha cutmix", "mix.cutmix"),
    ("mixup_prob", "mix.prob"),
    ("mixup_switch_prob", "mix.switch"),
    ("lr_base_size", "schedule.reference_batch"),
    ("print_freq log_interval log_every_n_steps", "log.every"),
    ("cache_dataset", "loader.cache"),
    ("use_deterministic_algorithms", "deterministic"),
    ("ra_sampler ra_reps aug_repeats", "augment.repeats"),
    ("weights initial_checkpoint pretrained_path finetune", "init.from"),
    ("zero_init_last", "zero_init_residual"),
    ("val_split", "eval_split"),
    ("opt_eps epsilon", "optimizer.eps"),
    ("opt_betas betas beta_1", "optimizer.beta1"),
    ("beta_2", "optimizer.beta2"),
    ("bce_loss", "loss.kind"),
    ("bce_sum", "loss.over_classes"),
    ("bce_target_thresh", "loss.threshold"),
    ("class_weight loss_weights", "loss.class_weights"),
    ("checkpoint_hist", "checkpoint.keep"),
    ("recovery_interval save_freq", "checkpoint.every"),
    ("val_transforms", "augment.eval"),
    ("teacher", "distill.teacher"),
];

/// Names of transforms in other programs, with the equivalent in trireme.
const TRANSFORMS: &[(&str, &str)] = &[
    ("horizontal_flip random_horizontal_flip hflip random_flip", "flip"),
    ("random_vertical_flip vflip", "vertical_flip"),
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
    ("to_tensor rescaling normalization standardize", "normalize"),
];

/// Names of schedules and optimizers in other programs, with the most similar kind in trireme.
const KINDS: &[(&str, &str)] = &[
    ("multistep multi_step_lr step_lr", "step"),
    ("cosine_annealing_lr cosine_annealing cosine_decay", "cosine"),
    ("one_cycle_lr one_cycle_policy", "one_cycle"),
    ("cosine_annealing_warm_restarts sgdr cosine_restarts cosine_with_restarts", "warm_restarts"),
    ("reduce_lr_on_plateau plateau_lr", "plateau"),
    ("exponential_lr exponential_decay", "exponential"),
    ("poly polynomial_lr linear", "polynomial"),
    ("constant_lr", "constant"),
    ("momentum nesterov", "sgd"),
    ("adam_w", "adamw"),
];

/// Exceptions from [`FOREIGN_KEYS`]: names that mean something else in a section or as an option.
const PATHS: &[(&str, &str)] = &[("loader.workers data.workers", "loader.threads")];

/// Settings that have no equivalent key, with a sentence for the user.
const SENTENCES: &[(&str, &str)] = &[
    (
        "norm_weight_decay bias_weight_decay no_weight_decay",
        "optimizer.no_decay = [\"norm\", \"bias\"] leaves these parameters without weight decay; optimizer.groups sets other values for \
         some parameters",
    ),
    (
        "step_size lr_step_size",
        "kind = \"step\" has a list of epochs in place of a step size: schedule.milestones = [30, 60, 90]; or kind = \
         \"exponential\" with decay_epochs = 30 and staircase = true",
    ),
    (
        "num_classes nb_classes",
        "the number of classes is that of the data set, and the last layer is sized accordingly",
    ),
    (
        "device accelerator use_gpu gpus gpu devices num_nodes nnodes nproc_per_node world_size local_rank dist_url \
         dist_backend backend strategy distributed no_ddp_bb device_modules synchronize_step rank node_rank master_addr \
         master_port",
        "devices are not part of the recipe: mpirun -n N (or srun) starts one rank per GPU or group of cores, and `trireme train \
         --device cuda` or `--device cpu` selects the kind of device",
    ),
    (
        "out output output_dir experiment default_root_dir save_dir log_dir logdir filepath work_dir",
        "the output folder of a run is an option: `trireme train RECIPE --out DIR`",
    ),
    (
        "resume resume_from ckpt_path start_epoch initial_epoch no_resume_opt auto_resume",
        "to resume a run, use an option: `trireme train RECIPE --out DIR --resume auto`",
    ),
    (
        "pretrained",
        "to start from trained weights, use init.from = \"FILE\" with a file of a run, PyTorch, Keras or ONNX",
    ),
    (
        "auto_augment aa autoaugment rand_augment randaugment trivial_augment ra_magnitude augmix augmix_severity aug_splits \
         use_v2",
        "policies are transforms: write \"auto_augment\", \"rand_augment(2, 9)\", \"trivial_augment\" or \"augmix\" into the \
         list augment.train",
    ),
    (
        "random_erase random_erasing reprob remode recount resplit",
        "it is a transform: write \"random_erasing(0.25)\" at the end of the list augment.train",
    ),
    (
        "hflip vflip horizontal_flip vertical_flip color_jitter color_jitter_prob grayscale_prob gaussian_blur_prob scale ratio \
         train_crop_mode no_aug rescale zoom_range crop_pct train_crop_size val_crop_size val_resize_size img_size image_size \
         imgsz interpolation train_interpolation mean std crop_padding_ratio",
        "images are prepared by two lists of transforms, augment.train and augment.eval, such as [\"random_resized_crop(224)\", \
         \"flip\", \"normalize\"] and [\"resize(256)\", \"center_crop(224)\", \"normalize\"]",
    ),
    (
        "grad_accum grad_accum_steps gradient_accumulation_steps accumulate_grad_batches accumulation_steps",
        "gradients are accumulated over workers: batch is the size of the whole step, and workers is the number of its parts; a rank \
         computes its parts one after another",
    ),
    ("test_only evaluate validate", "to only evaluate a model, use the command `trireme eval RUN`"),
    (
        "steps_per_epoch train_num_samples val_num_samples limit_train_batches overfit_batches fast_dev_run epoch_repeats \
         use_multi_epochs_loader",
        "an epoch is a pass over the training split; the length of a run is epochs or steps, --max-steps N ends it early, and \
         `trireme data sample` makes a smaller data set",
    ),
    (
        "min_epochs min_steps",
        "the length of a run is epochs or steps, with no minimum; stop.patience ends a run earlier",
    ),
    ("max_time", "it is an option: `trireme train RECIPE --time-limit 1h30m`"),
    (
        "validation_split validation_data validation_fraction train_split val_fraction",
        "splits are made with the data set: `trireme data convert ... --validation-fraction 0.1`; eval_split names the split to evaluate",
    ),
    (
        "validation_batch_size eval_batch_size val_batch_size",
        "scores do not depend on the batch size; training evaluates with the batch of a worker, and `trireme eval --batch N` sets \
         another size",
    ),
    (
        "loss criterion loss_fn",
        "the loss is a section: [loss] with kind = \"cross_entropy\", \"bce\", \"focal\" or \"sigmoid_focal\", or for numbers instead of \
         classes \"mse\", \"l1\" or \"huber\"",
    ),
    ("optimizer opt_kwargs", "the optimizer is a section: [optimizer] with kind = \"sgd\" and its keys"),
    (
        "metrics weighted_metrics",
        "top-1, top-5 and the loss are always computed, macro_f1 and map if checkpoint.best_by or stop.score names them",
    ),
    (
        "callbacks mode baseline start_from_epoch save_weights_only enable_checkpointing ema_overwrite_frequency",
        "there are no callbacks; use [checkpoint], [stop], [ema] and [schedule]",
    ),
    (
        "logger verbose log_wandb wandb_project wandb_tags wandb_resume_id enable_progress_bar enable_model_summary profiler \
         tensorboard_dir",
        "a run writes metrics.jsonl, report.html and event files for TensorBoard by itself ([log]); -v, --quiet and --trace \
         FILE are options",
    ),
    (
        "torchcompile torchcompile_mode torchscript jit_compile run_eagerly fuser channels_last steps_per_execution benchmark \
         pin_mem pin_memory prefetch_factor no_prefetcher persistent_workers grad_checkpointing inference_mode compile \
         amp_impl fast_norm model_ema_force_cpu",
        "trireme has no such setting: it chooses kernels, memory layouts and buffers itself; remove the key. `trireme bench` measures the \
         speed",
    ),
    (
        "barebones plugins split_bn use_distributed_sampler reload_dataloaders_every_n_epochs auto_scale_batch_size \
         num_sanity_val_steps detect_anomaly auto_scale_loss loss_scale_factor dist_bn_reduce",
        "trireme has no such setting; remove the key",
    ),
    (
        "limit_test_batches limit_predict_batches",
        "eval.limit is for the split that is evaluated during training; the test split is evaluated completely at the end",
    ),
    ("auto_lr_find lr_find", "it is an option: `trireme train RECIPE --find-lr`"),
    (
        "drop dropout drop_rate drop_path drop_path_rate drop_connect drop_block bn_momentum bn_eps model_kwargs \
         head_init_scale head_init_bias gp in_chans input_img_mode width depth",
        "layers are not part of the recipe: `trireme models NAME --toml` writes a network as a file that you can edit, and model = \
         \"FILE.toml\" trains it",
    ),
    (
        "bce_pos_weight jsd_loss amsgrad lr_noise lr_noise_pct lr_noise_std lr_k_decay lr_cycle_limit cutmix_minmax mixup_mode \
         mixup_off_epoch model_ema_warmup sched_on_updates warmup_prefix lr_base_scale clip_mode gradient_clip_algorithm \
         lr_warmup_method rho_decay sample_weight initial_decay decay_steps sampler save_images",
        "there is no such setting; docs/recipe.md lists all settings",
    ),
    (
        "dataset_download dataset_trust_remote_code class_map input_key target_key label_mode color_mode \
         image_dataset_from_directory x y split",
        "the data set is a folder that `trireme data convert KIND SRC OUT` creates once; select it with data = \"OUT\"",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LossKind, keys};
    use support::mentions;

    /// Every key and option that a hint suggests must exist.
    #[test]
    fn suggested_names_exist() {
        for (theirs, ours) in FOREIGN_KEYS.iter().chain(PATHS) {
            assert!(keys::find(ours).is_some(), "{theirs} -> {ours}");
        }
        let names = loaders::transform::names();
        for (theirs, ours) in TRANSFORMS {
            assert!(names.contains(&ours.split('(').next().unwrap()), "{theirs} -> {ours}");
        }
        let kinds = ["schedule", "optimizer"].map(|section| {
            let key = keys::find(&format!("{section}.kind")).unwrap();
            key.field.value_type.words().unwrap_or_default()
        });
        for (theirs, ours) in KINDS {
            assert!(kinds.iter().any(|words| words.contains(&format!("\"{ours}\""))), "{theirs} -> {ours}: {kinds:?}");
        }
    }

    /// Returns the name that a hint suggests. This is its only text in quotes.
    fn suggested(hint: &str) -> Option<&str> {
        hint.split('"').nth(1)
    }

    #[test]
    fn names_of_other_programs_and_typos_are_translated() {
        for (theirs, ours) in [
            ("lr", "schedule.base_lr"),
            ("optimizer.learning-rate", "schedule.base_lr"),
            ("optimiser", "optimizer.kind"),
            ("early_stopping", "stop.patience"),
            ("swa", "ema.swa_start"),
            ("monitor", "checkpoint.best_by"),
            ("loader.workers", "loader.threads"),
        ] {
            assert_eq!(equivalent(theirs), Some(Equivalent::Key(ours)), "{theirs}");
            assert_eq!(suggested(&of_key(theirs)), Some(ours), "{theirs}");
        }
        for typo in ["optimizer.momentun", "momentum"] {
            assert_eq!(equivalent(typo), None, "{typo}");
            assert_eq!(suggested(&of_key(typo)), Some("optimizer.momentum"), "{typo}");
        }
        for name in ["RandomHorizontalFlip", "filp"] {
            assert_eq!(suggested(&of_transform(name)), Some("flip"), "{name}");
        }
        assert_eq!(of_kind("OneCycleLR"), Some("one_cycle"));
        assert_eq!(suggested(&of_key("foo")), None);
        mentions(of_key("foo"), &["`trireme train --help`"]);
        assert_eq!(of_option("--epochs"), Some(Equivalent::Key("epochs")));
        assert_eq!(of_option("--weight-decay"), Some(Equivalent::Key("optimizer.weight_decay")));
        assert_eq!(of_option("--workers"), Some(Equivalent::Key("loader.threads")));
        assert_eq!(of_option("--banana"), None);
        mentions(of_key("schedule.step_size"), &["schedule.milestones = [30, 60, 90]"]);
        assert!(matches!(equivalent("num_classes"), Some(Equivalent::Sentence(_))));
        mentions(of_key("num_classes"), &["number of classes", "data set"]);
        LossKind::WORDS.iter().for_each(|kind| mentions(of_key("criterion"), &[&format!("\"{kind}\"")]));
        assert_eq!(suggested(&of_key("init.weights")), Some("init.from"));
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

    /// Every option of these programs is a key or has a sentence.
    #[test]
    fn every_option_of_other_programs_has_an_answer() {
        let all = [TORCHVISION, TIMM, KERAS, LIGHTNING].into_iter().flat_map(str::split_whitespace);
        let lost: Vec<&str> = all.filter(|option| of_option(option).is_none()).collect();
        assert_eq!(lost, [""; 0]);
        for word in
            "mixup_alpha ra_sampler auto_augment random_erase clip_grad_norm grad_accum pretrained device out resume"
                .split(' ')
        {
            assert!(equivalent(word).is_some(), "{word}");
        }
    }
}
