//! Warnings about settings that are allowed but will not have the expected effect, each with a remedy.

use base::text::plural;
use engine::optim::Schedule;
use engine::optim::schedule::ScheduleKind;
use engine::optim::score::Measure;
use loaders::order::worker_positions;
use loaders::{LabelKind, Manifest, Split};
use net::{NetSpec, Op};
use recipe::{LossKind, Recipe};

use super::division::Division;
use crate::error::Error;
use crate::train::evaluate::precisions_fit;

/// If the batch size scales the learning rate by more than this factor, it needs a warm-up.
const STEEP: f64 = 10.0;
/// If the batch size scales the learning rate to more than this, networks do not learn.
const WILD: f64 = 10.0;
/// If an epoch has fewer steps, the batch is too large a part of the data.
const FEW: u64 = 3;
/// With repeated augmentation, a step needs more than this number of different images.
const FEW_IMAGES: usize = 2;

/// Facts about a run that are not in its recipe.
#[derive(Clone, Copy, Debug)]
pub struct RunFacts {
    /// Images in the training split.
    pub images: u64,
    /// Step at which the run ends early, if requested.
    pub max_steps: Option<u64>,
    /// True if a split is scored during training, or if the run needs no scores.
    pub scored: bool,
}

/// Returns a warning for each setting that has no effect, or not the expected one.
pub fn warnings(recipe: &Recipe, net: &NetSpec, schedule: &Schedule, facts: RunFacts) -> Vec<String> {
    let found = [
        milestones(recipe, schedule),
        warm_up(schedule, facts),
        lookahead(recipe, schedule, facts),
        batch(recipe, facts),
        rate(recipe, schedule),
        sizes(recipe, schedule),
        freeze(recipe, schedule),
        cycle(recipe),
        stop(recipe),
        unscored(recipe, facts),
        repeats(recipe),
    ];
    found.into_iter().flatten().chain(without_layers(recipe, net)).map(|text| format!("warning: {text}")).collect()
}

/// Returns warnings about settings for layers that the network does not have.
fn without_layers(recipe: &Recipe, net: &NetSpec) -> Vec<String> {
    let has = |wanted: fn(&Op) -> bool| net.nodes.iter().any(|node| wanted(&node.op));
    let normalises = has(|op| op.statistics_momentum().is_some());
    let settings = [
        (
            "zero_init_residual = true",
            recipe.zero_init_residual && net.branch_ends().is_empty(),
            "no residual branch that ends in a batch normalisation",
        ),
        ("sync_bn = true", recipe.sync_bn && !normalises, "no batch normalisation"),
        ("bn_group", recipe.bn_group.is_some() && !normalises, "no batch normalisation"),
    ];
    let idle = settings.into_iter().filter(|(_, idle, _)| *idle);
    idle.map(|(key, _, what)| format!("{key} has no effect: network {} has {what}; remove this key", net.name))
        .collect()
}

/// Warns if layers would be frozen or trained only after the end of the run.
fn freeze(recipe: &Recipe, schedule: &Schedule) -> Option<String> {
    let settings = [
        ("freeze.after", recipe.freeze.after, "no layer is ever frozen"),
        ("freeze.epochs", recipe.freeze.epochs, "the frozen layers are never trained"),
    ];
    let is_late = |epochs: u32| f64::from(epochs) >= schedule.epochs();
    let (key, epochs, effect) = settings.into_iter().find(|(_, epochs, _)| epochs.is_some_and(is_late))?;
    Some(format!(
        "{key} = {} is not below the {} of the run, so {effect}; use a smaller number, or more epochs",
        epochs?,
        plural(schedule.epochs(), "epoch")
    ))
}

/// Warns about milestones at or after the end of the run.
fn milestones(recipe: &Recipe, schedule: &Schedule) -> Option<String> {
    let ScheduleKind::Step(step) = &recipe.schedule.kind else { return None };
    let epochs = schedule.epochs();
    let all = &step.milestones;
    let late: Vec<String> = all.iter().filter(|at| **at >= epochs).map(f64::to_string).collect();
    let last = all.last().filter(|_| !late.is_empty())?;
    // suggest milestones in the same proportions, with the last one at three quarters of the epochs after the warm-up
    let warmup = recipe.schedule.warmup_epochs;
    let scaled: Vec<String> =
        all.iter().map(|at| format!("{:.2}", warmup + 0.75 * (epochs - warmup) * at / last)).collect();
    Some(format!(
        "the learning rate will not be lowered at epoch {} (schedule.milestones), because the run has only {}: use --set \
         schedule.milestones=[{}], or more epochs",
        late.join(", "),
        plural(epochs, "epoch"),
        scaled.join(", ")
    ))
}

/// Warns if `--max-steps` ends the run during its warm-up. If the number of epochs does, reading the recipe already fails.
fn warm_up(schedule: &Schedule, facts: RunFacts) -> Option<String> {
    let (steps, warmup) = (facts.max_steps?, schedule.warmup_steps());
    (steps < warmup).then(|| {
        format!(
            "the learning rate never reaches {}: --max-steps {steps} ends the run in its warm-up of {warmup} steps; allow more steps, or \
             use a shorter schedule.warmup_epochs",
            schedule.target()
        )
    })
}

/// Warns if `--max-steps` ends the run at a step after which lookahead does not replace the weights by the averages.
fn lookahead(recipe: &Recipe, schedule: &Schedule, facts: RunFacts) -> Option<String> {
    let (steps, period, total) = (facts.max_steps?, recipe.ema.lookahead?, schedule.total_steps());
    let before = steps - steps % period;
    let others: Vec<String> =
        [before, (before + period).min(total)].iter().filter(|step| **step > 0).map(u64::to_string).collect();
    (steps < total && steps != before).then(|| {
        format!(
            "--max-steps {steps} ends the run between two steps after which the averages replace the weights (ema.lookahead = {period}), \
             so model.h5 will not have the averages as its weights: use --max-steps {}, or score the averages with `eval --ema`",
            others.join(" or ")
        )
    })
}

/// Warns if the batch is a large part of the data.
fn batch(recipe: &Recipe, facts: RunFacts) -> Option<String> {
    let RunFacts { images, .. } = facts;
    let steps = images.div_ceil(recipe.batch as u64);
    (recipe.batch as u64 * FEW > images).then(|| {
        format!(
            "batch = {} is more than a third of the {images} training images, so an epoch has only {}: use a smaller batch, such as \
             --set batch={}",
            recipe.batch,
            plural(steps, "step"),
            (images / 32).max(1)
        )
    })
}

/// Warns if scaling with the batch size has made the learning rate too high.
fn rate(recipe: &Recipe, schedule: &Schedule) -> Option<String> {
    let (target, scale) = (schedule.target(), schedule.scale());
    let base = recipe.schedule.base_lr;
    let why = || format!("base_lr {base} x batch {} / reference_batch", recipe.batch);
    match (target > WILD && scale > 1.0, scale > STEEP && schedule.warmup_steps() == 0) {
        (true, _) => Some(format!(
            "the learning rate is scaled to {target} ({}), which is too high for nearly all networks: use a smaller batch or base_lr, or \
             remove schedule.reference_batch",
            why()
        )),
        (false, true) => Some(format!(
            "the learning rate is scaled to {target}, {scale:.0} times the base ({}), from the first step on: use --set \
             schedule.warmup_epochs=5, or a smaller batch",
            why()
        )),
        _ => None,
    }
}

/// Warns about image sizes in `augment.sizes` that begin after the end of the run.
fn sizes(recipe: &Recipe, schedule: &Schedule) -> Option<String> {
    let epochs = schedule.epochs();
    let [from, side] = *recipe.augment.sizes.iter().flatten().find(|[from, _]| f64::from(*from) >= epochs)?;
    Some(format!(
        "augment.sizes sets {side} pixels from epoch {from} on, but the run has only {epochs:.1} epochs, so this size is never used; give \
         more steps, or remove it"
    ))
}

/// Warns about the limits of a momentum that stays constant. PyTorch changes the momentum by default.
fn cycle(recipe: &Recipe) -> Option<String> {
    let ScheduleKind::OneCycle(cycle) = &recipe.schedule.kind else { return None };
    let given = [
        ("schedule.base_momentum", cycle.base_momentum.is_some()),
        ("schedule.max_momentum", cycle.max_momentum.is_some()),
    ];
    let (key, _) = given.into_iter().find(|(_, given)| *given && !cycle.cycle_momentum())?;
    Some(format!("{key} has no effect without schedule.cycle_momentum = true; set it, or remove this key"))
}

/// Warns if early stopping is configured but has no criterion.
fn stop(recipe: &Recipe) -> Option<String> {
    let stop = &recipe.stop;
    let given = [("stop.score", stop.score.is_some()), ("stop.min_delta", stop.min_delta.is_some())];
    let (key, _) = given.into_iter().find(|(_, given)| *given && !stop.is_set())?;
    Some(format!("{key} has no effect without stop.patience or stop.target; add one of them, or remove this key"))
}

/// Warns if repeated augmentation leaves only one or two different images in a step.
fn repeats(recipe: &Recipe) -> Option<String> {
    let (repeats, batch) = (recipe.augment.repeats(), recipe.batch);
    let different = batch.div_ceil(repeats as usize);
    (repeats > 1 && batch > FEW_IMAGES && different <= FEW_IMAGES).then(|| {
        let images = plural(different, "different image");
        format!(
            "augment.repeats = {repeats} leaves {images} in a step of {batch}: use fewer repeats, or a larger batch"
        )
    })
}

/// Warns if no split can be scored.
fn unscored(recipe: &Recipe, facts: RunFacts) -> Option<String> {
    (!facts.scored).then(|| {
        format!(
            "nothing is evaluated: {} has no images in {}; to make such a split, use `trireme data split DIR OUT --fraction 0.1`, or \
             convert the photos again with --validation-fraction 0.1",
            recipe.data,
            possible_splits(recipe)
        )
    })
}

/// Names the splits that the run can score after each epoch, for messages that they have no images.
pub fn possible_splits(recipe: &Recipe) -> String {
    recipe.eval_split.as_ref().map_or("a split test or validation".into(), |split| format!("the split {split}"))
}

// Warns if a batch norm will see a single value per channel, for example one image with 1x1 maps. Its output is then only its bias and does
// not depend on the image, and the variance cannot be estimated. PyTorch rejects such batches.

/// Returns a warning if a worker, or a batch norm group, has only a single image in some step. With `across` set, batch
/// norm uses all workers' images together, so the warning is about steps with a single image.
pub fn single_value_warning(net: &NetSpec, division: &Division, across: bool) -> Option<String> {
    let least = |step: u64| {
        let images = division.images_of(step);
        let parts =
            |images: usize, parts: usize| (0..parts).map(move |part| worker_positions(images, part, parts).len());
        let shares = parts(images, division.workers).flat_map(|share| parts(share, net.bn_groups));
        if across { Some(images) } else { shares.filter(|share| *share > 0).min() }
    };
    let (first, last) = (least(0)?, least(division.steps_per_epoch.checked_sub(1)?)?);
    if first.min(last) > 1 {
        return None;
    }
    let shapes = net.shapes().ok()?;
    let single = net.nodes.iter().filter(|node| {
        let input = node.inputs.first().and_then(|input| shapes.get(input.0));
        node.op.statistics_momentum().is_some() && input.is_some_and(|shape| shape.h * shape.w == 1)
    });
    let names: Vec<&str> = single.map(|node| node.name.as_str()).collect();
    let (name, more) = (names.first()?, names.len() - 1);
    let layers = match more {
        0 => format!("batch normalisation {name}"),
        _ => format!("batch normalisation {name} and {more} more"),
    };
    let Division { images, batch, workers, .. } = division;
    let (part, larger) = match net.bn_groups {
        1 => ("a worker", "use fewer workers or a larger batch"),
        _ => ("a group", "use a larger bn_group"),
    };
    let (when, cure) = match first {
        1 => (format!("in each step {part} has 1 image"), larger),
        _ => (
            format!(
                "in the last step of each epoch {part} has 1 image ({images} images, batch = {batch}, workers = {workers})"
            ),
            "use another batch size",
        ),
    };
    Some(format!(
        "warning: {layers}: {when} and its input has 1x1 pixels, so each channel has a single value. The output is then only the bias and \
         does not depend on the image, and if no other worker or group has images, the running variance does not change: {cure}"
    ))
}

/// Returns an error if a setting does not fit the data set's labels: single classes, sets of classes, or numbers.
/// Returns an error with the key, the reason and a remedy.
pub fn check(recipe: &Recipe, manifest: &Manifest) -> Result<(), Error> {
    let kind = recipe.loss.kind();
    let (images, fits, cure) = match manifest.label_kind() {
        LabelKind::OneClass => (
            "have classes",
            !kind.is_regression(),
            "Leave loss.kind out, or convert the images with `--targets` so that they have numbers",
        ),
        LabelKind::Classes => (
            "may have several labels",
            matches!(kind, LossKind::Bce | LossKind::SigmoidFocal),
            "Write kind = \"bce\" under [loss] in the recipe, or use --set loss.kind=bce (\"sigmoid_focal\" works, too)",
        ),
        LabelKind::Numbers => (
            "have numbers instead of classes",
            kind.is_regression(),
            "Write kind = \"mse\" under [loss] in the recipe, or use --set loss.kind=mse (\"l1\" and \"huber\" work, too)",
        ),
    };
    let images = format!("images of {} {images}", recipe.data);
    if !fits {
        let wanted = match kind {
            kind if kind.is_regression() => "numbers",
            LossKind::Bce | LossKind::SigmoidFocal => "classes",
            _ => "one label",
        };
        return Err(Error::Usage(format!("loss.kind: {images}, but \"{kind}\" is for images with {wanted}. {cure}")));
    }
    if let Err(what) = data_tools::check_shown_bands(manifest, &recipe.log.shown_bands()) {
        return Err(Error::Usage(format!("log.bands: {what}")));
    }
    let (several, numbers) = (manifest.label_kind() == LabelKind::Classes, manifest.label_kind() == LabelKind::Numbers);
    let refused = [
        ("loss.class_weights", several && recipe.loss.class_weights.is_some(), "needs exactly one class per image"),
        ("balanced", (several || numbers) && recipe.balanced(), "needs exactly one class per image"),
        (
            "distill.teacher",
            (several || numbers) && recipe.distill.teacher.is_some(),
            "needs exactly one class per image",
        ),
        ("label_smoothing", numbers && recipe.label_smoothing > 0.0, "needs images with classes"),
    ];
    match refused.into_iter().find(|(_, given, _)| *given) {
        None => Ok(()),
        Some((key, _, what)) => Err(Error::Usage(format!("{key} {what}, but {images}; remove this key"))),
    }
}

/// Returns an error if the run needs a score that does not exist for these labels. Also returns an error if it needs
/// the mean average precision, and the evaluation has too many images and classes to compute it. The error names the key.
pub fn check_scores(recipe: &Recipe, labels: LabelKind, eval: Option<&Split>) -> Result<(), Error> {
    let numbers = labels == LabelKind::Numbers;
    if let Some((key, name)) = recipe.scores_used().into_iter().find(|(_, name)| !name.measure.exists(numbers)) {
        let (images, known) = match numbers {
            true => ("numbers", "\"loss\", \"rmse\", \"mae\" or \"r2\""),
            false => ("classes", "\"top1\", \"top5\", \"loss\", \"macro_f1\" or \"map\""),
        };
        return Err(Error::Usage(format!(
            "{key}: images of {} have {images}, so there is no score \"{}\"; use {known}",
            recipe.data, name.measure
        )));
    }
    let key = recipe.scores_used().into_iter().find(|(_, name)| name.measure == Measure::Map).map(|(key, _)| key);
    let (Some(key), Some(eval)) = (key, eval) else { return Ok(()) };
    let (images, classes) = (recipe.eval.limit.map_or(eval.len(), |most| most.min(eval.len())), eval.classes());
    if precisions_fit(classes, images) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{key}: \"map\" for {images} images and {classes} classes needs too much memory; score fewer images with eval.limit, \
         or use \"macro_f1\""
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    use net::{Shape, models};
    use support::mentions;

    const THREE_EPOCHS: &str = "epochs = 3\nbatch = 10";
    const PLAIN: &str = "kind = \"constant\"\nbase_lr = 0.1";

    /// Returns a recipe with these lines before its sections, in `[augment]` and from `[schedule]` on.
    fn recipe(head: &str, augment: &str, schedule: &str) -> Recipe {
        let text = format!(
            "model = \"lenet\"\ndata = \"d\"\n{head}\n[augment]\ntrain = []\neval = []\n{augment}\n\
             [optimizer]\nkind = \"sgd\"\n[schedule]\n{schedule}"
        );
        Recipe::from_toml(&text).unwrap()
    }

    /// Returns the warnings about a recipe with these lines in `[schedule]` and a data set with 1000 images.
    fn found(head: &str, schedule: &str, max_steps: Option<u64>) -> Vec<String> {
        let recipe = recipe(head, "", schedule);
        let images = 1000u64;
        let steps = images.div_ceil(recipe.batch as u64);
        let schedule = Schedule::over(&recipe.schedule, recipe.batch, recipe.total_steps(steps), steps).unwrap();
        let net = models::build(&recipe.model, Shape::image(3, 32, 32), 10).unwrap();
        warnings(&recipe, &net, &schedule, RunFacts { images, max_steps, scored: true })
    }

    #[track_caller]
    fn one(warnings: Vec<String>, parts: &[&str]) {
        assert!(warnings.len() == 1 && warnings[0].starts_with("warning: "), "{warnings:?}");
        mentions(&warnings[0], parts);
    }

    #[test]
    fn settings_with_an_effect_get_no_warning() {
        let step = "kind = \"step\"\nbase_lr = 0.1\nmilestones = [1, 2]";
        assert_eq!(found(THREE_EPOCHS, step, None), [""; 0]);
        let warm = "kind = \"cosine\"\nbase_lr = 0.1\nreference_batch = 10\nwarmup_epochs = 2";
        assert_eq!(found("epochs = 3\nbatch = 320", warm, Some(8)), [""; 0]);
        // without `reference_batch` the rate is exactly what the user set, so there is no warning
        assert_eq!(found(THREE_EPOCHS, "kind = \"constant\"\nbase_lr = 11", None), [""; 0]);
        assert_eq!(found("epochs = 3\nbatch = 333", PLAIN, None), [""; 0]);
    }

    #[test]
    fn milestones_after_the_end() {
        let step = |at: &str| format!("kind = \"step\"\nbase_lr = 0.1\nmilestones = {at}");
        one(
            found(THREE_EPOCHS, &step("[82, 123]"), None),
            &["epoch 82, 123", "3 epochs", "schedule.milestones=[1.50, 2.25]"],
        );
        let warm = step("[82, 123]\nwarmup_epochs = 2");
        one(found(THREE_EPOCHS, &warm, None), &["schedule.milestones=[2.50, 2.75]"]);
        one(found(THREE_EPOCHS, &step("[1, 3]"), None), &["not be lowered", "epoch 3 "]);
    }

    #[test]
    fn layers_that_would_be_frozen_or_trained_after_the_end() {
        let head = |freeze: &str| format!("{THREE_EPOCHS}\nfreeze = {{ patterns = [\"conv*\"], {freeze} }}");
        one(found(&head("after = 3"), PLAIN, None), &["freeze.after = 3", "3 epochs", "ever frozen"]);
        one(found(&head("epochs = 4"), PLAIN, None), &["freeze.epochs = 4", "3 epochs", "never trained"]);
        assert_eq!(found(&head("after = 2"), PLAIN, None), [""; 0]);
    }

    #[test]
    fn a_run_that_ends_in_its_warm_up() {
        let warm = "kind = \"cosine\"\nbase_lr = 0.1\nwarmup_epochs = 2";
        one(found(THREE_EPOCHS, warm, Some(199)), &["--max-steps 199", "warm-up", "200 steps", "never reaches 0.1"]);
        assert_eq!(found(THREE_EPOCHS, warm, Some(200)), [""; 0]);
    }

    #[test]
    fn a_run_that_ends_between_two_steps_of_lookahead() {
        let head = format!("{THREE_EPOCHS}\nema = {{ decay = 0.9, lookahead = 7 }}");
        let of = |max_steps| found(&head, PLAIN, max_steps);
        one(of(Some(103)), &["--max-steps 103", "ema.lookahead = 7", "--max-steps 98 or 105", "eval --ema"]);
        one(of(Some(3)), &["--max-steps 3 ", "use --max-steps 7,"]);
        // the averages also replace the weights after the last step, 300
        one(of(Some(298)), &["--max-steps 294 or 300"]);
        for ends in [None, Some(0), Some(105), Some(300), Some(400)] {
            assert_eq!(of(ends), [""; 0], "{ends:?}");
        }
    }

    #[test]
    fn a_batch_that_is_most_of_the_data() {
        one(
            found("epochs = 3\nbatch = 334", PLAIN, None),
            &["batch = 334", "1000 training images", "3 steps:", "--set batch=31"],
        );
        one(found("epochs = 3\nbatch = 5000", PLAIN, None), &["only 1 step:"]);
    }

    #[test]
    fn image_sizes_after_the_last_step() {
        let grows = |steps| {
            let recipe = recipe(&format!("steps = {steps}\nbatch = 10"), "sizes = [[0, 128], [3, 224]]", PLAIN);
            sizes(&recipe, &Schedule::over(&recipe.schedule, 10, steps, 100).unwrap())
        };
        mentions(grows(300).unwrap(), &["augment.sizes", "224 pixels", "epoch 3 ", "3.0 epochs"]);
        assert_eq!(grows(301), None);
    }

    #[test]
    fn settings_for_layers_that_the_network_lacks() {
        let of = |lines: &str| found(&format!("{THREE_EPOCHS}\n{lines}"), PLAIN, None);
        one(of("zero_init_residual = true"), &["zero_init_residual = true", "lenet", "residual branch"]);
        one(of("sync_bn = true"), &["sync_bn = true", "lenet", "batch normalisation"]);
        let idle = |net: &str| {
            let recipe = recipe(&format!("{THREE_EPOCHS}\nzero_init_residual = true\nsync_bn = true"), "", PLAIN);
            let net = models::build(net, Shape::image(3, 32, 32), 10).unwrap();
            without_layers(&recipe, &net).len()
        };
        assert_eq!((idle("lenet"), idle("resnet20")), (2, 0));
    }

    #[test]
    fn steps_of_one_image() {
        let of = |batch: usize, times: u32| {
            repeats(&recipe(&format!("epochs = 3\nbatch = {batch}"), &format!("repeats = {times}"), PLAIN))
        };
        let few = of(32, 99_999_999).unwrap();
        mentions(few, &["augment.repeats = 99999999", "1 different image ", "step of 32"]);
        mentions(of(32, 16).unwrap(), &["augment.repeats = 16", "2 different images"]);
        assert_eq!([of(32, 10), of(32, 1), of(2, 2)], [None, None, None]);
    }

    #[test]
    fn a_data_set_without_a_split_to_score() {
        let recipe = recipe(THREE_EPOCHS, "", PLAIN);
        let of = |scored| unscored(&recipe, RunFacts { images: 1000, max_steps: None, scored });
        mentions(of(false).unwrap(), &["d has no images", "test or validation", "--validation-fraction"]);
        assert_eq!(of(true), None);
    }

    #[test]
    fn a_stop_score_without_a_criterion() {
        let plain = format!("{PLAIN}\n[stop]");
        one(
            found(THREE_EPOCHS, &format!("{plain}\nscore = \"loss\""), None),
            &["stop.score", "stop.patience", "stop.target"],
        );
        one(
            found(THREE_EPOCHS, &format!("{plain}\nmin_delta = 0.1"), None),
            &["stop.min_delta", "stop.patience", "stop.target"],
        );
        assert_eq!(found(THREE_EPOCHS, &format!("{plain}\npatience = 2\nmin_delta = 0.1"), None), [""; 0]);
    }

    #[test]
    fn limits_of_a_constant_momentum() {
        let cycle = |more: &str| format!("kind = \"one_cycle\"\nbase_lr = 0.1\nmax_momentum = 0.9{more}");
        one(found(THREE_EPOCHS, &cycle(""), None), &["schedule.max_momentum", "schedule.cycle_momentum = true"]);
        one(found(THREE_EPOCHS, &cycle("\nbase_momentum = 0.8"), None), &["schedule.base_momentum"]);
        assert_eq!(found(THREE_EPOCHS, &cycle("\ncycle_momentum = true"), None), [""; 0]);
    }

    #[test]
    fn learning_rates_that_are_scaled_too_high() {
        let linear = "kind = \"constant\"\nbase_lr = 0.1\nreference_batch = 10";
        one(found("epochs = 3\nbatch = 110", linear, None), &["scaled to 1.1", "11 times", "warmup_epochs=5"]);
        let high = "kind = \"constant\"\nbase_lr = 1\nreference_batch = 10\nwarmup_epochs = 1";
        one(found("epochs = 3\nbatch = 110", high, None), &["scaled to 11 ", "base_lr 1 x batch 110"]);
        assert_eq!(found("epochs = 3\nbatch = 100", linear, None), [""; 0]);
    }

    fn warned(model: &str, images: u64, batch: usize, workers: usize, across: bool) -> Option<String> {
        let net = models::build(model, net::Shape { c: 3, h: 32, w: 32 }, 10).unwrap();
        single_value_warning(&net, &Division::new(images, batch, workers, 0, 1), across)
    }

    #[test]
    fn one_value_per_channel_gets_a_warning() {
        // for 32x32 images, the last stage of ResNet-18 has 1x1 maps
        let each = warned("resnet18", 257, 64, 64, false).unwrap();
        mentions(each, &["layer4.0.bn1 and ", "in each step", "1 image ", "1x1"]);
        let last = warned("resnet18", 257, 64, 1, false).unwrap();
        mentions(last, &["layer4.0.bn1 and ", "last step", "257 images", "batch = 64", "workers = 1"]);
        for (images, batch, workers, across) in
            [(256, 64, 1, false), (257, 43, 1, false), (256, 64, 32, false), (256, 64, 64, true)]
        {
            assert_eq!(warned("resnet18", images, batch, workers, across), None, "{images} {batch} {workers}");
        }
        assert!(warned("resnet18", 257, 64, 4, true).is_some());
        // all maps of ResNet-20 are larger, and LeNet has no batch norm
        assert_eq!([warned("resnet20", 257, 64, 64, false), warned("lenet", 257, 64, 64, false)], [None, None]);
    }
}
