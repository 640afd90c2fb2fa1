//! Settings of PyTorch, torchvision's reference script, timm, Keras and Lightning that are not keys of a recipe. A sentence explains each.

/// The setting's names, separated by spaces, and the sentence.
pub(super) const SENTENCES: &[(&str, &str)] = &[
    (
        "norm_weight_decay bias_weight_decay no_weight_decay",
        "optimizer.no_decay = [\"norm\", \"bias\"] leaves these parameters without weight decay; optimizer.groups gives \
         parameters numbers of their own",
    ),
    (
        "step_size lr_step_size",
        "kind = \"step\" has a list of epochs in place of a step size: schedule.milestones = [30, 60, 90]; or kind = \
         \"exponential\" with decay_epochs = 30 and staircase = true",
    ),
    ("num_classes nb_classes", "the number of classes is that of the data set; the last layer fits it by itself"),
    (
        "device accelerator use_gpu gpus gpu devices num_nodes nnodes nproc_per_node world_size local_rank dist_url \
         dist_backend backend strategy distributed no_ddp_bb device_modules synchronize_step rank node_rank master_addr \
         master_port",
        "where a run computes is no key of the recipe: mpirun -n N (or srun) starts a rank for each GPU or group of cores, and \
         `trireme train --device cuda` or cpu says on what",
    ),
    (
        "out output output_dir experiment default_root_dir save_dir log_dir logdir filepath work_dir",
        "the folder of a run is an option: `trireme train RECIPE --out DIR`",
    ),
    (
        "resume resume_from ckpt_path start_epoch initial_epoch no_resume_opt auto_resume",
        "a run goes on by an option: `trireme train RECIPE --out DIR --resume auto`",
    ),
    (
        "pretrained",
        "the weights that a run starts from are a file: init.from = \"FILE\", of a run, PyTorch, Keras or ONNX",
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
        "images are made by two lists of transforms, augment.train and augment.eval, such as [\"random_resized_crop(224)\", \
         \"flip\", \"normalize\"] and [\"resize(256)\", \"center_crop(224)\", \"normalize\"]",
    ),
    (
        "grad_accum grad_accum_steps gradient_accumulation_steps accumulate_grad_batches accumulation_steps",
        "gradients are accumulated over workers: batch is the whole step, and workers says into how many parts it is cut; more \
         workers than ranks share the ranks",
    ),
    ("test_only evaluate validate", "scoring alone is a command: `trireme eval RUN`"),
    (
        "steps_per_epoch train_num_samples val_num_samples limit_train_batches overfit_batches fast_dev_run epoch_repeats \
         use_multi_epochs_loader",
        "an epoch is a pass over the training split; the length of a run is epochs or steps, --max-steps N ends it early, and \
         `trireme data sample` makes a smaller data set",
    ),
    ("min_epochs min_steps", "a run is epochs or steps long; stop.patience ends it earlier"),
    ("max_time", "it is an option: `trireme train RECIPE --time-limit 1h30m`"),
    (
        "validation_split validation_data validation_fraction train_split val_fraction",
        "splits are made with the data set: `trireme data convert ... --validation-fraction 0.1`; eval_split names the one that \
         is scored",
    ),
    (
        "validation_batch_size eval_batch_size val_batch_size",
        "scores do not depend on the batch, and are computed in that of a worker; `trireme eval --batch N` takes another",
    ),
    (
        "loss criterion loss_fn",
        "the loss is a section: [loss] with kind = \"cross_entropy\", \"bce\", \"focal\" or \"sigmoid_focal\"",
    ),
    ("optimizer opt_kwargs", "the optimizer is a section: [optimizer] with kind = \"sgd\" and its keys"),
    (
        "metrics weighted_metrics",
        "top-1, top-5 and the loss are always scored; macro_f1 and map where checkpoint.best_by or stop.score names them",
    ),
    (
        "callbacks mode baseline start_from_epoch save_weights_only enable_checkpointing ema_overwrite_frequency",
        "there are no callbacks: [checkpoint], [stop], [ema] and [schedule] do their work",
    ),
    (
        "logger verbose log_wandb wandb_project wandb_tags wandb_resume_id enable_progress_bar enable_model_summary profiler \
         tensorboard_dir",
        "a run writes metrics.jsonl, report.html and event files for TensorBoard by itself ([log]); -v, --quiet and --trace \
         FILE are options",
    ),
    (
        "torchcompile torchcompile_mode torchscript jit_compile run_eagerly fuser channels_last steps_per_execution benchmark \
         pin_mem pin_memory prefetch_factor no_prefetcher persistent_workers grad_checkpointing inference_mode barebones \
         plugins compile amp_impl fast_norm model_ema_force_cpu split_bn use_distributed_sampler \
         reload_dataloaders_every_n_epochs auto_scale_batch_size num_sanity_val_steps detect_anomaly auto_scale_loss \
         loss_scale_factor dist_bn_reduce",
        "it has no counterpart: the program plans layouts, memory and reading by itself, and `trireme bench` measures them; \
         leave it out",
    ),
    (
        "limit_test_batches limit_predict_batches",
        "eval.limit is for the split that is scored while the run trains; test is scored as a whole at the end",
    ),
    ("auto_lr_find lr_find", "it is an option: `trireme train RECIPE --find-lr`"),
    (
        "drop dropout drop_rate drop_path drop_path_rate drop_connect drop_block bn_momentum bn_eps model_kwargs \
         head_init_scale head_init_bias gp in_chans input_img_mode width depth",
        "the layers of a network are no keys of the recipe: `trireme models NAME --toml` writes a network as a file to change, \
         which model = \"FILE.toml\" trains",
    ),
    (
        "bce_pos_weight jsd_loss amsgrad lr_noise lr_noise_pct lr_noise_std lr_k_decay lr_cycle_limit cutmix_minmax mixup_mode \
         mixup_off_epoch model_ema_warmup sched_on_updates warmup_prefix lr_base_scale clip_mode gradient_clip_algorithm \
         lr_warmup_method rho_decay sample_weight initial_decay decay_steps sampler save_images",
        "there is no such setting; docs/recipe.md lists what there is",
    ),
    (
        "dataset_download dataset_trust_remote_code class_map input_key target_key label_mode color_mode \
         image_dataset_from_directory x y split",
        "the data set is a folder that `trireme data convert KIND SRC OUT` makes once; data = \"OUT\" names it",
    ),
];
