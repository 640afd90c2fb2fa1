//! Values that have the right type and still make no sense, each refused with what to try.

use super::error::{Error, Origin};
use super::{Known, Recipe, Sync, did_you_mean, keys};
use crate::comm::codec::{self, Entry};

/// Checks a whole recipe; the first fault is the answer.
pub(super) fn check(recipe: &Recipe, origin: &Origin, known: &Known) -> Result<(), Error> {
    let refuse = |key: &str, why: String| Err(Error::Value { place: origin.of(key), why });
    check_model(recipe, known).or_else(|why| refuse("model", why))?;
    for (key, got) in at_least_one(recipe) {
        if got == 0 {
            return refuse(key, "must be >= 1, got 0".into());
        }
    }
    if let Some(workers) = recipe.workers {
        batch_holds_workers(recipe.batch, workers).or_else(|why| refuse("batch", why))?;
    }
    for (key, got, range, fine) in ranges(recipe) {
        if !fine {
            return refuse(key, format!("must be {range}, got {got}"));
        }
    }
    recipe.optimizer.check().or_else(|e| refuse(&format!("optimizer.{}", e.key), e.why))?;
    if let Some(decay) = recipe.ema.decay.filter(|d| !(*d > 0.0 && *d < 1.0)) {
        return refuse("ema.decay", format!("must be in (0, 1), as 0.999, got {decay}"));
    }
    check_codec(recipe).or_else(|(key, why)| refuse(key, why))?;
    recipe.shuffle.parse::<loaders::Shuffle>().map(drop).or_else(|why| refuse("shuffle", why))?;
    if let Err(why) = recipe.checkpoint.every.parse::<super::Every>() {
        return refuse("checkpoint.every", why);
    }
    if recipe.loader.cache == "device" && recipe.loader.on_corrupt == "skip" {
        let why = "\"device\" keeps every image in its place, and loader.on_corrupt = \"skip\" leaves some out; drop one of the two";
        return refuse("loader.cache", why.into());
    }
    if recipe.data.is_empty() {
        return refuse("data", "empty; name a folder, or give --data DIR".into());
    }
    for (key, list) in [("augment.train", &recipe.augment.train), ("augment.eval", &recipe.augment.eval)] {
        check_transforms(list, known).or_else(|why| refuse(key, why))?;
    }
    recipe.schedule.check(recipe.epochs).or_else(|e| refuse(&format!("schedule.{}", e.key), e.why))
}

/// Keys of `[reduce]` must have a meaning for the codec, and the codec for the workers.
fn check_codec(recipe: &Recipe) -> Result<(), (&'static str, String)> {
    let reduce = &recipe.reduce;
    let Some(codec) = codec::find(&reduce.codec) else { return Ok(()) };
    let given: [(&'static str, bool); 5] = [
        ("reduce.error_feedback", reduce.error_feedback.is_some()),
        ("reduce.min_elements", reduce.min_elements.is_some()),
        ("reduce.logits", reduce.logits.is_some()),
        ("reduce.exempt", reduce.exempt.is_some()),
        ("reduce.clip", reduce.clip.is_some()),
    ];
    for (path, _) in given.iter().filter(|(_, given)| *given) {
        let key = path.trim_start_matches("reduce.");
        if !codec.keys.contains(&key) {
            let takers: Vec<&str> = codec::CATALOGUE.iter().filter(|c| c.keys.contains(&key)).map(|c| c.name).collect();
            let why = match (key, codec.integer) {
                ("error_feedback", true) => ", which rounds without bias: nothing is lost that could be fed back",
                _ => "",
            };
            let (takers, name) = (takers.join(" or "), codec.name);
            return Err((path, format!("belongs to codec {takers}, but reduce.codec = \"{name}\"{why}")));
        }
    }
    if reduce.error_feedback == Some(true) && codec.keys.contains(&"clip") && reduce.clip() == 0.0 {
        return Err((
            "reduce.error_feedback",
            "has no effect with reduce.clip = 0: what is not clipped is unbiased".into(),
        ));
    }
    if reduce.error_feedback == Some(true) && recipe.precision == "f16" {
        let why = "with precision = \"f16\" gradients travel multiplied by a scale that changes, and what is carried over would not; use bf16";
        return Err(("reduce.error_feedback", why.into()));
    }
    match recipe.workers {
        Some(workers) => codec_holds_workers(codec, workers).map_err(|why| ("workers", why)),
        None => Ok(()),
    }
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

/// Some things span the ranks, and mean something only where each rank is one worker.
pub(super) fn one_worker_a_rank(recipe: &Recipe, workers: usize, ranks: usize) -> Result<(), Error> {
    let refuse = |place: &str, why: String| Err(Error::Value { place: place.into(), why });
    let cure = format!(
        "needs one worker a rank, got {workers} workers on {ranks} ranks; start {workers} ranks, or leave workers out"
    );
    if recipe.sync_bn && workers != ranks {
        return refuse("sync_bn", format!("batch normalisation over the whole batch {cure}"));
    }
    if recipe.sync != Sync::Allreduce {
        if workers != ranks {
            return refuse("sync", format!("\"{}\" {cure}", recipe.sync));
        }
        if recipe.sync_bn {
            return refuse(
                "sync_bn",
                format!("has ranks meet in every layer, \"{}\" only now and then; drop one", recipe.sync),
            );
        }
        if recipe.ema.decay.is_some() {
            return refuse(
                "ema.decay",
                format!("averages over time are of one model, and sync = \"{}\" has one a rank; drop one", recipe.sync),
            );
        }
        if recipe.reduce.codec != "float" {
            let codec = &recipe.reduce.codec;
            return refuse(
                "reduce.codec",
                format!("\"{codec}\" is for gradients, and sync = \"{}\" sends none; drop one", recipe.sync),
            );
        }
    }
    if let Sync::Easgd { alpha, .. } = recipe.sync
        && alpha * ranks as f64 > 1.0
    {
        let most = 1.0 / ranks as f64;
        return refuse(
            "sync",
            format!(
                "alpha = {alpha} on {ranks} ranks throws the centre beyond their mean; expected at most 1 / ranks = {most:.4}"
            ),
        );
    }
    Ok(())
}

fn check_model(recipe: &Recipe, known: &Known) -> Result<(), String> {
    if known.models.contains(&recipe.model.as_str()) {
        return Ok(());
    }
    let (model, has) = (&recipe.model, keys::quoted(known.models));
    Err(format!("\"{model}\" is not in the catalogue, which has {has}{}", did_you_mean(model, known.models)))
}

fn check_transforms(list: &[String], known: &Known) -> Result<(), String> {
    for transform in list {
        let name = transform.split('(').next().unwrap_or(transform).trim();
        if !known.transforms.contains(&name) {
            let has = keys::quoted(known.transforms);
            let hint = did_you_mean(name, known.transforms);
            return Err(format!("\"{transform}\" is not a transform; there are {has}{hint}"));
        }
    }
    Ok(())
}

fn at_least_one(recipe: &Recipe) -> [(&'static str, u64); 6] {
    [
        ("epochs", u64::from(recipe.epochs)),
        ("batch", recipe.batch as u64),
        ("workers", recipe.workers.unwrap_or(1) as u64),
        ("loader.threads", recipe.loader.threads.unwrap_or(1) as u64),
        ("log.every", recipe.log.every),
        ("checkpoint.keep", recipe.checkpoint.keep as u64),
    ]
}

fn ranges(recipe: &Recipe) -> [(&'static str, f64, &'static str, bool); 4] {
    let clip = recipe.reduce.clip();
    let (smoothing, bucket) = (recipe.label_smoothing, recipe.reduce.bucket_mb);
    [
        ("label_smoothing", smoothing, "in [0, 1)", (0.0..1.0).contains(&smoothing)),
        ("reduce.bucket_mb", bucket, "> 0", bucket > 0.0),
        ("reduce.clip", clip, ">= 0", clip >= 0.0),
        ("loader.buffer_mb", recipe.loader.buffer_mb, "> 0", recipe.loader.buffer_mb > 0.0),
    ]
}
