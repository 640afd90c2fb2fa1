//! Checks of a recipe beyond the schema: names that must exist, and keys that must fit together. Each error says what
//! to try.

use base::text::{did_you_mean, plural};
use comm::codec::Entry;
use engine::optim::schedule::ScheduleKind;
use engine::optim::score::ScoreName;
use loaders::{Shuffle, transform};
use net::models;
use schema::{Parsed, Section, quoted};
use toml::Table;

use super::error::{Error, KeyFault, Origin, refuse_given};
use super::hint;
use super::options::{Codec, ImageCache, OnCorrupt, Sync};
use super::sections::{Recipe, Reduce};

/// Checks a whole recipe. Returns the first error that it finds.
pub(super) fn check(recipe: &Recipe, origin: &Origin) -> Result<(), Error> {
    let refuse = |key: &str, why: String| Err(Error::Value { place: origin.of(key), why });
    check_model(recipe).or_else(|why| refuse("model", why))?;
    check_length(recipe).or_else(|(key, why)| refuse(key, why))?;
    if let Some(workers) = recipe.workers {
        let key = if origin.sets.contains_key("workers") { "workers" } else { "batch" };
        batch_holds_workers(recipe.batch, workers).or_else(|why| refuse(key, why))?;
    }
    recipe.optimizer.check().or_else(|e| refuse(&format!("optimizer.{}", e.key), e.why))?;
    check_codec(recipe, origin)?;
    if recipe.balanced() && recipe.shuffling() != Shuffle::Full {
        let why = "needs all images of the split, but shuffle = \"window(k)\" opens only some shards at a time; use shuffle = \"full\", \
                   or remove this key";
        return refuse("balanced", why.into());
    }
    if recipe.augment.train.iter().any(|transform| transform_name(transform) == "alternating_flip") {
        for (key, given) in [("balanced", recipe.balanced()), ("augment.repeats", recipe.augment.repeats() > 1)] {
            if given {
                let why = "with this key, an epoch does not contain every image, so \"alternating_flip\" in augment.train cannot \
                           alternate; write \"flip\", or remove this key";
                return refuse(key, why.into());
            }
        }
    }
    recipe.loss.check().or_else(|(key, why)| refuse(key, why))?;
    recipe.distill.check().or_else(|(key, why)| refuse(key, why))?;
    recipe.mix.check(recipe.batch, recipe.workers).or_else(|(key, why)| refuse(key, why))?;
    check_cycle(recipe).or_else(|why| refuse("schedule.cycle_momentum", why))?;
    check_sam(recipe).or_else(|why| refuse("optimizer.sam_rho", why))?;
    check_start(recipe).or_else(|(key, why)| refuse(key, why))?;
    if recipe.loader.cache == ImageCache::Device && recipe.loader.on_corrupt == OnCorrupt::Skip {
        let why = "\"device\" needs every image, but loader.on_corrupt = \"skip\" may skip some; remove one of the two";
        return refuse("loader.cache", why.into());
    }
    if let Some(number) = recipe.log.bands.iter().flatten().find(|&&number| number < 1.0 || number.fract() != 0.0) {
        return refuse("log.bands", format!("{number} is not the number of a band; count from 1, as in [4, 3, 2]"));
    }
    if recipe.log.histograms.is_some() && recipe.sync != Sync::Allreduce {
        let why = format!(
            "with sync = \"{}\" each rank has its own gradients; use sync = \"allreduce\", or remove this key",
            recipe.sync
        );
        return refuse("log.histograms", why);
    }
    check_scores(recipe).or_else(|(key, why)| refuse(key, why))?;
    if recipe.data.is_empty() {
        return refuse("data", "is empty; name a folder, or use --data DIR".into());
    }
    for (key, list) in [("augment.train", &recipe.augment.train), ("augment.eval", &recipe.augment.eval)] {
        check_transforms(list).or_else(|why| refuse(key, why))?;
    }
    recipe.augment.check_sizes(recipe.epochs).or_else(|why| refuse("augment.sizes", why))?;
    if recipe.augment.sizes.is_some() && recipe.loader.cache == ImageCache::Device {
        let why = "\"device\" keeps images of one size, but augment.sizes has more; remove one of the two";
        return refuse("loader.cache", why.into());
    }
    if recipe.augment.repeats() > 1 && recipe.shuffling() != Shuffle::Full {
        let why = "a window of shards contains each image once; use shuffle = \"full\", or remove this key";
        return refuse("augment.repeats", why.into());
    }
    let epochs = recipe.epochs.map_or(f64::INFINITY, f64::from);
    recipe.schedule.check(epochs).or_else(|e| refuse(&format!("schedule.{}", e.key), e.why))
}

/// Checks that the optimizer has a momentum if the schedule changes the momentum.
fn check_cycle(recipe: &Recipe) -> Result<(), String> {
    let ScheduleKind::OneCycle(cycle) = &recipe.schedule.kind else { return Ok(()) };
    let kind = &recipe.optimizer.kind;
    let rule = |momentum| kind.settings().rule(1, Some(momentum));
    if !cycle.cycle_momentum() || rule(0.5) != rule(0.25) {
        return Ok(());
    }
    Err(format!("optimizer.kind = \"{}\" has no momentum; remove this key", kind.name()))
}

/// Checks that sharpness-aware minimisation, which computes two gradients over all ranks per step, is not combined with
/// settings that do not allow this.
fn check_sam(recipe: &Recipe) -> Result<(), String> {
    match recipe.optimizer.sam_rho {
        None => Ok(()),
        Some(_) if recipe.sync != Sync::Allreduce => {
            Err(format!("needs the gradient of all ranks, which sync = \"{}\" does not compute; remove one of the two", recipe.sync))
        }
        Some(_) if recipe.may_use_f16() => {
            Err("cannot be combined with precision = \"f16\", which multiplies gradients by a scale that changes from step to step; use \
                 precision = \"bf16\""
                .into())
        }
        Some(_) if recipe.reduce.error_feedback() => {
            Err("cannot be combined with reduce.error_feedback, which would add the rounding error of one gradient to the other gradient \
                 of the same step; remove one of the two"
                .into())
        }
        Some(_) if recipe.freeze.patterns.is_some() => Err("cannot be combined with freeze.patterns; remove one of the two".into()),
        Some(_) => Ok(()),
    }
}

/// Checks that the length of the run is given either in epochs or in steps.
fn check_length(recipe: &Recipe) -> Result<(), KeyFault> {
    match (recipe.epochs, recipe.steps) {
        (None, None) => {
            let why = "this required key is missing; expected an integer: passes over the training split; or give steps, the optimizer \
                       steps of the whole run";
            Err(("epochs", why.into()))
        }
        (Some(epochs), Some(_)) => Err((
            "steps",
            format!("the length of the run is already given by epochs = {epochs}; remove one of the two"),
        )),
        _ => Ok(()),
    }
}

/// Checks `[init]` and `[freeze]`: keys that need another key, renaming rules, and that `sync` allows frozen
/// parameters.
fn check_start(recipe: &Recipe) -> Result<(), KeyFault> {
    let (init, freeze) = (&recipe.init, &recipe.freeze);
    if init.from.is_none() {
        let others = [
            ("init.key", init.key.is_some()),
            ("init.sha256", init.sha256.is_some()),
            ("init.exclude", init.exclude.is_some()),
            ("init.strict", init.strict.is_some()),
            ("init.match", init.r#match.is_some()),
            ("init.stem", init.stem.is_some()),
        ];
        refuse_given(&others, "init.from, the file of weights", "init.from")?;
    }
    if let Some(digits) = &init.sha256
        && !(digits.len() == 64 && digits.chars().all(|digit| digit.is_ascii_hexdigit()))
    {
        return Err((
            "init.sha256",
            format!("expected 64 hexadecimal digits, as sha256sum prints them, got \"{digits}\""),
        ));
    }
    init.rules().map_err(|why| ("init.match", why))?;
    if freeze.patterns.is_none() {
        let times = [("freeze.epochs", freeze.epochs.is_some()), ("freeze.after", freeze.after.is_some())];
        refuse_given(&times, "freeze.patterns, the parameters that are not trained", "freeze.patterns")?;
    }
    if freeze.epochs.is_some() && freeze.after.is_some() {
        return Err(("freeze.after", "cannot be combined with freeze.epochs; remove one of the two".into()));
    }
    if freeze.patterns.is_some() && recipe.sync != Sync::Allreduce {
        let why = format!(
            "cannot be combined with sync = \"{}\", which averages all parameters; use sync = \"allreduce\"",
            recipe.sync
        );
        return Err(("freeze.patterns", why));
    }
    Ok(())
}

/// Checks that the keys of `[reduce]` fit the codec, and that the codec allows this number of workers.
fn check_codec(recipe: &Recipe, origin: &Origin) -> Result<(), Error> {
    let refuse = |key: &str, why: String| Err(Error::Value { place: origin.of(key), why });
    let codec = &recipe.reduce.codec;
    let given = Table::try_from(&recipe.reduce).map_err(|e| Error::Write { why: e.to_string() })?;
    for key in Reduce::SCHEMA.fields.iter().map(|field| field.name).filter(|name| given.contains_key(*name)) {
        let owners = Codec::with_key(key);
        if !owners.is_empty() && !owners.contains(&codec.name) {
            let why = match (key, codec.integer) {
                ("error_feedback", true) => ", which rounds without bias, so there is no error to feed back",
                _ => "",
            };
            let (owners, name) = (owners.join(" or "), codec.name);
            let why = format!("belongs to codec {owners}, but reduce.codec = \"{name}\"{why}; remove this key");
            return refuse(&format!("reduce.{key}"), why);
        }
    }
    if recipe.reduce.error_feedback() {
        check_error_feedback(recipe).or_else(|why| refuse("reduce.error_feedback", why))?;
    }
    match recipe.workers {
        Some(workers) => codec_holds_workers(codec, workers).or_else(|why| refuse("workers", why)),
        None => Ok(()),
    }
}

/// Rejects error feedback if it has no effect or would be wrong.
fn check_error_feedback(recipe: &Recipe) -> Result<(), String> {
    if recipe.reduce.codec.keys.contains(&"clip") && recipe.reduce.clip() == 0.0 {
        return Err("has no effect with reduce.clip = 0, because without clipping the codec rounds without bias; remove this key, or set \
                    reduce.clip".into());
    }
    if recipe.may_use_f16() {
        return Err("with precision = \"f16\" gradients are multiplied by a scale that changes from step to step, so the rounding error of \
                    one step cannot be added to the next; use precision = \"bf16\""
            .into());
    }
    Ok(())
}

/// Checks that the codec can sum over all workers.
fn codec_holds_workers(codec: &Entry, workers: usize) -> Result<(), String> {
    if workers <= codec.most_workers {
        return Ok(());
    }
    let (name, most) = (codec.name, codec.most_workers);
    Err(format!(
        "reduce.codec = \"{name}\" can sum over at most {most} workers, got {workers}; use fewer workers or another codec"
    ))
}

/// Checks that every worker gets at least one image of a full batch.
fn batch_holds_workers(batch: usize, workers: usize) -> Result<(), String> {
    if batch >= workers {
        return Ok(());
    }
    Err(format!(
        "{} cannot be divided among {workers} workers; use a batch of at least {workers} or fewer workers",
        plural(batch, "image")
    ))
}

/// Checks that groups of `bn_group` images divide the images of each worker, and that `bn_group` is not combined with
/// `sync_bn`.
fn groups_divide_worker(recipe: &Recipe, workers: usize) -> Result<(), String> {
    let (Some(group), batch) = (recipe.bn_group, recipe.batch) else { return Ok(()) };
    let images = batch / workers;
    if recipe.sync_bn {
        return Err(format!(
            "each group of {} has its own statistics, but with sync_bn = true all images of the batch share them; remove one of the two",
            plural(group, "image")
        ));
    }
    if batch.is_multiple_of(workers) && images.is_multiple_of(group) {
        return Ok(());
    }
    let given = format!("batch = {batch}, workers = {workers}");
    if !batch.is_multiple_of(workers) {
        return Err(format!(
            "needs a batch that can be divided equally among the workers ({given}); give another batch"
        ));
    }
    let divisor = (1..=group.min(images)).rev().find(|divisor| images.is_multiple_of(*divisor)).unwrap_or(1);
    Err(format!(
        "the {} of a worker cannot be divided into groups of {group} ({given}); give a divisor of {images}, such as {divisor}",
        plural(images, "image")
    ))
}

impl Recipe {
    /// Sets `workers` to `ranks` if the recipe does not have it.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more ranks than workers, because a rank would idle, or if the batch has fewer
    /// images than workers.
    pub fn resolve(&mut self, ranks: usize) -> Result<(), Error> {
        let workers = *self.workers.get_or_insert(ranks);
        if ranks > workers {
            let why = format!(
                "{} were started, but there {}, and each rank needs at least one; start at most {}, or set workers to {ranks} or more",
                plural(ranks, "rank"),
                match workers {
                    1 => "is 1 worker".to_string(),
                    _ => format!("are {workers} workers"),
                },
                plural(workers, "rank")
            );
            return refuse("workers", why);
        }
        codec_holds_workers(&self.reduce.codec, workers).or_else(|why| refuse("workers", why))?;
        one_worker_a_rank(self, workers, ranks)?;
        groups_divide_worker(self, workers).or_else(|why| refuse("bn_group", why))?;
        self.mix.check(self.batch, Some(workers)).or_else(|(key, why)| refuse(key, why))?;
        batch_holds_workers(self.batch, workers).or_else(|why| refuse("batch", why))
    }
}

fn refuse(key: &str, why: String) -> Result<(), Error> {
    Err(Error::Value { place: key.into(), why })
}

/// Checks settings that need exactly one worker per rank: `sync_bn`, and every `sync` except `allreduce`.
fn one_worker_a_rank(recipe: &Recipe, workers: usize, ranks: usize) -> Result<(), Error> {
    let cure = format!(
        "needs one worker per rank, got {} on {}; start {}. Only a new run can have another number of workers (without `workers` in \
         the recipe, one per rank)",
        plural(workers, "worker"),
        plural(ranks, "rank"),
        plural(workers, "rank")
    );
    if recipe.sync_bn && workers != ranks {
        return refuse("sync_bn", format!("batch normalisation over the whole batch {cure}"));
    }
    if recipe.sync == Sync::Allreduce {
        return Ok(());
    }
    if workers != ranks {
        return refuse("sync", format!("\"{}\" {cure}", recipe.sync));
    }
    without_gradients(recipe)?;
    recipe.sync.is_stable_on(ranks).or_else(|why| refuse("sync", why))
}

/// Rejects settings that need the same model on all ranks or gradient sums in every step. Called if `sync` is not
/// `allreduce`, so that the ranks synchronise their parameters only from time to time.
fn without_gradients(recipe: &Recipe) -> Result<(), Error> {
    let sync = recipe.sync;
    if recipe.sync_bn {
        return refuse(
            "sync_bn",
            format!(
                "synchronises the ranks in every layer, but sync = \"{sync}\" only after several steps; remove one of the two"
            ),
        );
    }
    if recipe.ema.is_kept() {
        let why = format!(
            "averages one model over time, but with sync = \"{sync}\" each rank has its own model; remove one of the two"
        );
        return refuse(if recipe.ema.swa_start.is_some() { "ema.swa_start" } else { "ema.decay" }, why);
    }
    if recipe.reduce.codec != Codec::default() {
        let why = format!(
            "\"{}\" encodes gradients, but sync = \"{sync}\" does not send any; remove one of the two",
            recipe.reduce.codec.name
        );
        return refuse("reduce.codec", why);
    }
    Ok(())
}

/// Returns true if the value of `model` is a file name.
pub(super) fn is_file(model: &str) -> bool {
    model.ends_with(".toml") || model.ends_with(".onnx")
}

fn check_model(recipe: &Recipe) -> Result<(), String> {
    let of_onnx = recipe.model.ends_with(".onnx");
    if recipe.model_weights.is_some() && !of_onnx {
        return Err(format!(
            "model_weights is only for ONNX files, but model = \"{}\"; remove model_weights",
            recipe.model
        ));
    }
    if models::find(&recipe.model).is_some() || is_file(&recipe.model) {
        return Ok(());
    }
    let (model, similar) = (&recipe.model, did_you_mean(&recipe.model, &models::names()));
    Err(format!(
        "there is no network \"{model}\"; expected a name that `trireme models` lists, or a network file, whose name ends in .toml or \
         .onnx{similar}"
    ))
}

/// Returns the name of a transform without its arguments.
fn transform_name(transform: &str) -> &str {
    transform.split('(').next().unwrap_or(transform).trim()
}

fn check_transforms(list: &[String]) -> Result<(), String> {
    let known = transform::names();
    for transform in list {
        let name = transform_name(transform);
        if !known.contains(&name) {
            let hint = hint::of_transform(name);
            // The list of all transforms is long, so it is only printed if there is nothing better to say.
            let all = || format!("; the transforms are {}", quoted(&known));
            return Err(format!("\"{transform}\" is not a transform{}", if hint.is_empty() { all() } else { hint }));
        }
    }
    Ok(())
}

impl Recipe {
    /// Returns the scores that a setting depends on, each with the key of that setting.
    pub fn scores_used(&self) -> Vec<(&'static str, ScoreName)> {
        let best = self.checkpoint.best_by.as_ref().map(|by| ("checkpoint.best_by", by.value()));
        let stop = self.stop.is_set().then(|| ("stop.score", self.stop.score().value()));
        let plateau = match &self.schedule.kind {
            ScheduleKind::Plateau(plateau) => Some(("schedule.score", plateau.score().value())),
            _ => None,
        };
        best.into_iter().chain(stop).chain(plateau).collect()
    }

    /// Returns true if the averaged weights are evaluated.
    pub fn scores_averages(&self) -> bool {
        self.ema.is_kept() && self.eval.ema()
    }

    /// Checks that averages (`ema.swa_start`, `ema.lookahead`) are updated at the last step of the run or earlier. This
    /// needs the number of steps per epoch.
    ///
    /// # Errors
    ///
    /// Returns an error with the key.
    pub fn averages_begin(&self, steps_per_epoch: u64) -> Result<(), Error> {
        let total = self.total_steps(steps_per_epoch);
        if let Some(period) = self.ema.lookahead.filter(|&period| period > total) {
            let why = format!(
                "expected at most {total}, the number of steps of the run, got {period}. The averages would never be updated, and the \
                 run would end with its initial weights; use a smaller number, or more epochs or steps"
            );
            return Err(Error::Value { place: "ema.lookahead".into(), why });
        }
        match self.ema.swa_start {
            Some(start) if u64::from(start).saturating_mul(steps_per_epoch) > total => {
                let why = format!(
                    "the run has {total} steps with {steps_per_epoch} per epoch, so nothing would be averaged after epoch {start}; use \
                     more epochs or steps, or an earlier swa_start"
                );
                Err(Error::Value { place: "ema.swa_start".into(), why })
            }
            _ => Ok(()),
        }
    }

    /// Returns the score that selects the best checkpoint.
    pub fn best_by(&self) -> ScoreName {
        let default = if self.loss.kind().is_regression() { ScoreName::LOSS } else { ScoreName::TOP1 };
        self.checkpoint.best_by.as_ref().map_or(default, Parsed::value)
    }
}

/// Checks `[eval]`, `[ema]` and `[stop]`, and that all scores that other keys name will be computed.
fn check_scores(recipe: &Recipe) -> Result<(), KeyFault> {
    let (eval, stop) = (&recipe.eval, &recipe.stop);
    if eval.offset() >= eval.every() && eval.offset() > 0 {
        let why = format!("must be below eval.every = {}, got {}", eval.every(), eval.offset());
        return Err(("eval.offset", why));
    }
    if !recipe.ema.is_kept() {
        refuse_given(&[("eval.ema", eval.ema == Some(true))], "ema.decay or ema.swa_start", "one of them")?;
    }
    check_averages(recipe)?;
    if let Some(target) = stop.target
        && stop.score().value().measure.is_share()
        && !(0.0..=1.0).contains(&target)
    {
        return Err(("stop.target", format!("must be between 0 and 1, such as 0.759 for 75.9 %, got {target}")));
    }
    for (key, name) in recipe.scores_used().into_iter().filter(|(_, name)| name.ema) {
        if !recipe.ema.is_kept() {
            let measure = name.measure;
            let why = format!("\"{name}\" needs averages; set ema.decay, for example to 0.999, or use \"{measure}\"");
            return Err((key, why));
        }
        if !recipe.scores_averages() {
            return Err((key, format!("\"{name}\" needs scores of the averages; remove eval.ema = false")));
        }
    }
    Ok(())
}

/// Checks that the recipe uses only one kind of weight averaging, that its keys fit together, and that averaging begins
/// within the run.
fn check_averages(recipe: &Recipe) -> Result<(), KeyFault> {
    let ema = &recipe.ema;
    if ema.swa_start.is_some() && ema.decay.is_some() {
        return Err(("ema.swa_start", "cannot be combined with ema.decay; choose one of the two".into()));
    }
    if let (Some(start), Some(epochs)) = (ema.swa_start, recipe.epochs)
        && start > epochs
    {
        let epochs = plural(epochs, "epoch");
        let why = format!("the run has only {epochs}, so nothing would be averaged, got {start}; use a smaller number");
        return Err(("ema.swa_start", why));
    }
    if ema.swa_start.is_none() {
        refuse_given(&[("ema.swa_every", ema.swa_every.is_some())], "ema.swa_start", "ema.swa_start")?;
    }
    if ema.lookahead.is_some() && ema.decay.is_none() {
        let why = "needs ema.decay, the fraction of the averages that stays when they move towards the weights; set it, for \
                   example ema.decay = 0.5, or remove this key";
        return Err(("ema.lookahead", why.into()));
    }
    if ema.lookahead.is_none() {
        refuse_given(&[("ema.lookahead_power", ema.lookahead_power.is_some())], "ema.lookahead", "ema.lookahead")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{invalid, read_lines};

    /// Reads a recipe of three epochs with these lines.
    fn read(lines: &str) -> Result<Recipe, Error> {
        read_lines(&format!("epochs = 3\n{lines}"), &[], &[]).map(|loaded| loaded.recipe)
    }

    /// Asserts that these lines are invalid at `key`, and that the reason contains all `parts`.
    #[track_caller]
    fn refused(lines: &str, key: &str, parts: &[&str]) {
        invalid(&read(lines).unwrap_err(), &format!("a.toml: {key}"), parts);
    }

    #[test]
    fn epochs_are_scored_at_the_interval() {
        let scored = |lines: &str| {
            let eval = read(lines).unwrap().eval;
            (1..=9).filter(|epoch| eval.scores(*epoch)).collect::<Vec<_>>()
        };
        assert_eq!(scored("").len(), 9);
        assert_eq!(scored("[eval]\nevery = 4"), [4, 8]);
        assert_eq!(scored("[eval]\nevery = 4\noffset = 1"), [1, 5, 9]);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_by_key() {
        refused("[eval]\nevery = 2\noffset = 2", "eval.offset", &["eval.every = 2", "got 2"]);
        refused("[eval]\nlimit = 0", "eval.limit", &[">= 1", "got 0"]);
        refused("[eval]\nema = true", "eval.ema", &["ema.decay", "ema.swa_start"]);
        refused("[stop]\ntarget = 75.9", "stop.target", &["0 and 1", "got 75.9"]);
        refused("[stop]\npatience = 2\nscore = \"acc\"", "stop.score", &["\"macro_f1\"", "\"acc\""]);
        let averages = ["\"ema.top1\"", "ema.decay", "\"top1\""];
        refused("[checkpoint]\nbest_by = \"ema.top1\"", "checkpoint.best_by", &averages);
        refused("[ema]\ndecay = 0.9\nswa_start = 2", "ema.swa_start", &["ema.decay"]);
        refused("[ema]\nswa_start = 4", "ema.swa_start", &["3 epochs", "got 4"]);
        refused("[ema]\nlookahead = 5", "ema.lookahead", &["ema.decay"]);
        refused("[ema]\ndecay = 0.5\nlookahead_power = 3", "ema.lookahead_power", &["ema.lookahead"]);
        refused("[ema]\nswa_every = 2", "ema.swa_every", &["ema.swa_start"]);
        let off = "[stop]\npatience = 1\nscore = \"ema.loss\"\n[ema]\ndecay = 0.9\n[eval]\nema = false";
        refused(off, "stop.score", &["\"ema.loss\"", "eval.ema = false"]);
    }

    #[test]
    fn averages_begin_within_a_run_of_steps() {
        let mut recipe = read("[ema]\nswa_start = 3").unwrap();
        (recipe.epochs, recipe.steps) = (None, Some(260));
        invalid(&recipe.averages_begin(100).unwrap_err(), "ema.swa_start", &["260 steps", "100 per epoch", "epoch 3"]);
        // The averages may begin with the last step: then only its weights are averaged.
        recipe.steps = Some(300);
        assert!(recipe.averages_begin(100).is_ok());
        recipe.ema.swa_start = Some(u32::MAX);
        assert!(recipe.averages_begin(u64::MAX).is_err());
        recipe.ema.swa_start = None;
        assert!(recipe.averages_begin(100).is_ok());
        (recipe.ema.decay, recipe.ema.lookahead) = (Some(0.5), Some(301));
        invalid(&recipe.averages_begin(100).unwrap_err(), "ema.lookahead", &["at most 300", "got 301"]);
        recipe.ema.lookahead = Some(300);
        assert!(recipe.averages_begin(100).is_ok());
    }

    #[test]
    fn numbers_have_scores_of_their_own() {
        let recipe = read("[loss]\nkind = \"huber\"\ndelta = 0.5\n[stop]\ntarget = 12.5\nscore = \"rmse\"").unwrap();
        assert_eq!((recipe.best_by(), recipe.stop.target), (ScoreName::LOSS, Some(12.5)));
        refused("[loss]\nkind = \"mse\"\ndelta = 1.0", "loss.delta", &["\"huber\"", "\"mse\""]);
        refused("[loss]\nkind = \"l1\"\nclass_weights = \"auto\"", "loss.class_weights", &["\"bce\"", "\"l1\""]);
        refused("[loss]\nkind = \"mse\"\nthreshold = 0.1", "loss.threshold", &["\"bce\""]);
    }

    #[test]
    fn a_loss_may_be_any_target() {
        use engine::optim::score::Measure;

        let recipe = read("[stop]\ntarget = 1.5\nscore = \"loss\"\n[checkpoint]\nbest_by = \"macro_f1\"").unwrap();
        assert_eq!(recipe.stop.target, Some(1.5));
        assert_eq!(recipe.best_by().measure, Measure::MacroF1);
        assert_eq!(
            recipe.scores_used().iter().map(|one| one.0).collect::<Vec<_>>(),
            ["checkpoint.best_by", "stop.score"]
        );
    }
}
