//! Checks beyond the schema: names that must exist, and keys that must fit each other. Each error says what to try.

use backend::Precision;
use comm::codec::Entry;
use engine::optim::schedule::ScheduleKind;
use loaders::Shuffle;
use loaders::text::did_you_mean;
use schema::{Section, quoted};
use toml::Table;

use super::codec::Codec;
use super::error::{Error, Origin};
use super::{hint, scores};
use super::options::{ImageCache, OnCorrupt};
use super::recipe::Recipe;
use super::sections::Reduce;
use super::sync::Sync;

/// The names that this build knows, against which a recipe is checked.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Networks of the catalogue.
    pub models: &'a [&'a str],
    /// Transforms, by bare name: `pad_crop`.
    pub transforms: &'a [&'a str],
}

/// Checks a whole recipe, and returns the first fault.
pub(super) fn check(recipe: &Recipe, origin: &Origin, known: &Known) -> Result<(), Error> {
    let refuse = |key: &str, why: String| Err(Error::Value { place: origin.of(key), why });
    check_model(recipe, known).or_else(|why| refuse("model", why))?;
    check_length(recipe, origin)?;
    if let Some(workers) = recipe.workers {
        batch_holds_workers(recipe.batch, workers).or_else(|why| refuse("batch", why))?;
    }
    recipe.optimizer.check().or_else(|e| refuse(&format!("optimizer.{}", e.key), e.why))?;
    check_codec(recipe, origin)?;
    if recipe.balanced() && recipe.mixing() != Shuffle::Full {
        let why = "draws from all of the split, and windows keep to some shards at a time; use shuffle = \"full\"";
        return refuse("balanced", why.into());
    }
    recipe.loss.check().or_else(|(key, why)| refuse(key, why))?;
    recipe.distill.check().or_else(|(key, why)| refuse(key, why))?;
    recipe.mix.check(recipe.batch, recipe.workers).or_else(|(key, why)| refuse(key, why))?;
    check_cycle(recipe).or_else(|why| refuse("schedule.cycle_momentum", why))?;
    check_sam(recipe).or_else(|why| refuse("optimizer.sam_rho", why))?;
    check_start(recipe).or_else(|(key, why)| refuse(key, why))?;
    if recipe.loader.cache == ImageCache::Device && recipe.loader.on_corrupt == OnCorrupt::Skip {
        let why = "\"device\" needs every image, and loader.on_corrupt = \"skip\" leaves some out; drop one of the two";
        return refuse("loader.cache", why.into());
    }
    if recipe.log.histograms.is_some() && recipe.sync != Sync::Allreduce {
        let why = format!(
            "with sync = \"{}\" each rank has gradients of its own; use sync = \"allreduce\", or leave it out",
            recipe.sync
        );
        return refuse("log.histograms", why);
    }
    scores::check(recipe, origin)?;
    if recipe.data.is_empty() {
        return refuse("data", "empty; name a folder, or give --data DIR".into());
    }
    for (key, list) in [("augment.train", &recipe.augment.train), ("augment.eval", &recipe.augment.eval)] {
        check_transforms(list, known).or_else(|why| refuse(key, why))?;
    }
    recipe.augment.check_sizes(recipe.epochs).or_else(|why| refuse("augment.sizes", why))?;
    if recipe.augment.sizes.is_some() && recipe.loader.cache == ImageCache::Device {
        let why = "\"device\" keeps images for one size, and augment.sizes has several; drop one of the two";
        return refuse("loader.cache", why.into());
    }
    if recipe.augment.repeats() > 1 && recipe.mixing() != Shuffle::Full {
        let why = "windows of shards hold each image once; use shuffle = \"full\", or leave it out";
        return refuse("augment.repeats", why.into());
    }
    let epochs = recipe.epochs.map_or(f64::INFINITY, f64::from);
    recipe.schedule.check(epochs).or_else(|e| refuse(&format!("schedule.{}", e.key), e.why))
}

/// A momentum that changes needs an optimizer that has one.
fn check_cycle(recipe: &Recipe) -> Result<(), String> {
    let ScheduleKind::OneCycle(cycle) = &recipe.schedule.kind else { return Ok(()) };
    let kind = &recipe.optimizer.kind;
    if !cycle.cycle_momentum() || kind.settings().rule_with_momentum(1, 0.5).is_some() {
        return Ok(());
    }
    Err(format!("optimizer.kind = \"{}\" has no momentum; leave it out", kind.name()))
}

/// Sharpness-aware minimisation needs a gradient of all ranks twice a step.
fn check_sam(recipe: &Recipe) -> Result<(), String> {
    match recipe.optimizer.sam_rho {
        None => Ok(()),
        Some(_) if recipe.sync != Sync::Allreduce => {
            Err(format!("climbs by the gradient of all ranks, which sync = \"{}\" does not sum; drop one", recipe.sync))
        }
        Some(_) if recipe.precision == Precision::F16 => {
            Err("with precision = \"f16\" gradients are multiplied by a scale that changes from step to step; use bf16"
                .into())
        }
        Some(_) if recipe.reduce.error_feedback() => {
            Err("with reduce.error_feedback what one gradient lost would go into the other of the same step; drop one"
                .into())
        }
        Some(_) if recipe.freeze.patterns.is_some() => Err("cannot be combined with freeze.patterns; drop one".into()),
        Some(_) => Ok(()),
    }
}

/// A run is so many epochs long, or so many steps.
fn check_length(recipe: &Recipe, origin: &Origin) -> Result<(), Error> {
    match (recipe.epochs, recipe.steps) {
        (None, None) => {
            let doc = "passes over the training split; or give steps, the optimizer steps of the whole run";
            Err(Error::Missing { place: origin.of("epochs"), expected: "an integer".into(), doc })
        }
        (Some(epochs), Some(_)) => {
            let why = format!("the run has a length already, epochs = {epochs}; give one of the two");
            Err(Error::Value { place: origin.of("steps"), why })
        }
        _ => Ok(()),
    }
}

/// `[init]` and `[freeze]`: keys that have no meaning without another, and rules that cannot work.
fn check_start(recipe: &Recipe) -> Result<(), (&'static str, String)> {
    let (init, freeze) = (&recipe.init, &recipe.freeze);
    if init.from.is_none() {
        let others = [
            ("init.exclude", init.exclude.is_some()),
            ("init.strict", init.strict.is_some()),
            ("init.match", init.r#match.is_some()),
        ];
        if let Some((key, _)) = others.into_iter().find(|(_, given)| *given) {
            return Err((key, "has no meaning without init.from, the file of weights".into()));
        }
    }
    init.rules().map_err(|why| ("init.match", why))?;
    if freeze.patterns.is_none() && freeze.epochs.is_some() {
        return Err((
            "freeze.epochs",
            "has no meaning without freeze.patterns, the parameters that are not trained".into(),
        ));
    }
    if freeze.patterns.is_some() && recipe.sync != Sync::Allreduce {
        let why = format!("sync = \"{}\" averages all parameters; use sync = \"allreduce\"", recipe.sync);
        return Err(("freeze.patterns", why));
    }
    Ok(())
}

/// Keys of `[reduce]` must have a meaning for the codec, and the codec for the workers.
fn check_codec(recipe: &Recipe, origin: &Origin) -> Result<(), Error> {
    let refuse = |key: &str, why: String| Err(Error::Value { place: origin.of(key), why });
    let codec = recipe.reduce.codec.entry();
    let given = Table::try_from(&recipe.reduce).map_err(|e| Error::Write { why: e.to_string() })?;
    for key in Reduce::SCHEMA.fields.iter().map(|field| field.name).filter(|name| given.contains_key(*name)) {
        let owners = Codec::with_key(key);
        if !owners.is_empty() && !owners.contains(&codec.name) {
            let why = match (key, codec.integer) {
                ("error_feedback", true) => ", which rounds without bias: nothing is lost that could be fed back",
                _ => "",
            };
            let (owners, name) = (owners.join(" or "), codec.name);
            let why = format!("belongs to codec {owners}, but reduce.codec = \"{name}\"{why}");
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

/// Refuses error feedback where it has no effect, or where it would be wrong.
fn check_error_feedback(recipe: &Recipe) -> Result<(), String> {
    if recipe.reduce.codec.keys.contains(&"clip") && recipe.reduce.clip() == 0.0 {
        return Err("has no effect with reduce.clip = 0: what is not clipped is unbiased".into());
    }
    if recipe.precision == Precision::F16 {
        return Err("with precision = \"f16\" gradients are multiplied by a scale that changes from step to step, which would not fit \
                    what was carried over; use bf16"
            .into());
    }
    Ok(())
}

/// Sums over all workers must fit.
pub(super) fn codec_holds_workers(codec: &Entry, workers: usize) -> Result<(), String> {
    if workers <= codec.most_workers {
        return Ok(());
    }
    let (name, most) = (codec.name, codec.most_workers);
    Err(format!(
        "the lanes of reduce.codec = \"{name}\" hold the sums of {most} workers at most, got {workers}; use at most {most} \
         workers or another codec"
    ))
}

/// Every worker must have an image of every full batch.
pub(super) fn batch_holds_workers(batch: usize, workers: usize) -> Result<(), String> {
    if batch >= workers {
        return Ok(());
    }
    Err(format!(
        "{batch} images cannot be shared by {workers} workers; use a batch of at least {workers} or fewer workers"
    ))
}

/// Whether the value of `model` names a file.
pub(super) fn is_file(model: &str) -> bool {
    model.ends_with(".toml") || model.ends_with(".onnx")
}

fn check_model(recipe: &Recipe, known: &Known) -> Result<(), String> {
    let of_onnx = recipe.model.ends_with(".onnx");
    if recipe.model_weights.is_some() && !of_onnx {
        return Err("model_weights is for an ONNX file, which has weights; leave it out".into());
    }
    if known.models.contains(&recipe.model.as_str()) || is_file(&recipe.model) {
        return Ok(());
    }
    let (model, has) = (&recipe.model, quoted(known.models));
    Err(format!(
        "\"{model}\" is not in the catalogue, which has {has}, and no file of one's own, which ends in .toml or .onnx{}",
        did_you_mean(model, known.models)
    ))
}

fn check_transforms(list: &[String], known: &Known) -> Result<(), String> {
    for transform in list {
        let name = transform.split('(').next().unwrap_or(transform).trim();
        if !known.transforms.contains(&name) {
            let has = quoted(known.transforms);
            let hint = hint::of_transform(name, known.transforms);
            return Err(format!("\"{transform}\" is not a transform; there are {has}{hint}"));
        }
    }
    Ok(())
}
