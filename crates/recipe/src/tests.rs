//! Tests that read, change and write recipes. Error tests check the variant, the place and the data.

use std::collections::BTreeSet;
use std::path::Path;

use base::text::did_you_mean;
use engine::optim::schedule::{ScheduleKind, Step};
use engine::optim::{Lars, OptimizerKind};
use loaders::{Manifest, SplitManifest};
use support::mentions;

use super::*;

const SMALL: &str = r#"
model = "resnet20"
data = "data/cifar10"
epochs = 160
batch = 128
[optimizer]
kind = "sgd"
momentum = 0.9
weight_decay = 1e-4
no_decay = ["*.bias", "*bn*"]
[schedule]
kind = "step"
base_lr = 0.1
milestones = [82, 123]
[augment]
train = ["pad_crop(4)", "flip", "normalize"]
eval = ["normalize"]
"#;

fn with(sets: &[&str]) -> Result<Recipe, Error> {
    changed(sets, &[]).map(|loaded| loaded.recipe)
}

fn changed(sets: &[&str], unsets: &[&str]) -> Result<Loaded, Error> {
    Recipe::parse(SMALL, "small.toml", &changes(sets, unsets))
}

fn changes(sets: &[&str], unsets: &[&str]) -> Changes {
    let [sets, unsets] = [sets, unsets].map(|list| list.iter().map(|text| text.to_string()).collect());
    Changes { sets, unsets }
}

/// Reads a.toml, a recipe of LeNet with these lines, and applies the changes. The lines must give the length.
pub(crate) fn read_lines(lines: &str, sets: &[&str], unsets: &[&str]) -> Result<Loaded, Error> {
    let text = format!(
        "model = \"lenet\"\ndata = \"d\"\nbatch = 8\n{lines}\n[optimizer]\nkind = \"sgd\"\n[schedule]\n\
         kind = \"constant\"\nbase_lr = 0.1\n"
    );
    Recipe::parse(&text, "a.toml", &changes(sets, unsets))
}

#[test]
fn settings_for_gpus_apply_to_gpus_only() {
    let adapted = |device: &str| {
        let mut recipe = with(&["cuda.precision=bf16", "cuda.tf32=true"]).unwrap();
        recipe.adapt_to(device);
        let written = recipe.to_toml().unwrap();
        assert!(!written.contains("[cuda]"), "the recipe of the run must hold on any device: {written}");
        (recipe.precision, recipe.tf32)
    };
    assert_eq!(adapted("cuda"), (Precision::Bf16, true));
    assert_eq!(adapted("cpu"), (Precision::F32, false));
    invalid_last(&["cuda.precision=f16", "optimizer.sam_rho=0.05"], &["precision = \"f16\"", "bf16"]);
}

fn refusal(sets: &[&str]) -> Error {
    with(sets).unwrap_err()
}

fn refused_text(from: &str, to: &str) -> Error {
    assert!(SMALL.contains(from), "{from}");
    Recipe::parse(&SMALL.replace(from, to), "small.toml", &Changes::default()).unwrap_err()
}

/// Asserts that the value at `place` is not allowed, and that the reason contains all `parts`.
#[track_caller]
pub(crate) fn invalid(error: &Error, place: &str, parts: &[&str]) {
    let Error::Value { place: found, why } = error else { panic!("{error:?}") };
    assert_eq!(found, place, "{why}");
    mentions(why, parts);
}

/// Asserts that the value in the last of these `--set` is not allowed, and that the reason contains all `parts`.
#[track_caller]
fn invalid_last(sets: &[&str], parts: &[&str]) {
    let last = sets.last().expect("there is a --set");
    invalid(&refusal(sets), &format!("--set {last}"), parts);
}

/// Asserts that the key at `place` is unknown, and that the hint contains `suggestion`.
#[track_caller]
fn unknown(error: &Error, place: &str, suggestion: &str) {
    let Error::UnknownKey { place: found, hint } = error else { panic!("{error:?}") };
    assert_eq!(found, place, "{hint}");
    mentions(hint, &[suggestion]);
}

/// Asserts that small.toml has neither `epochs` nor `steps`, and that the error says that either is enough.
#[track_caller]
fn missing_length(error: &Error) {
    invalid(error, "small.toml: epochs", &["required key is missing", "steps"]);
}

#[test]
fn defaults() {
    let recipe = with(&[]).unwrap();
    assert_eq!((recipe.seed, recipe.workers, recipe.precision), (1, None, Precision::F32));
    assert_eq!((recipe.label_smoothing, recipe.eval_split.as_deref()), (0.0, None));
    assert_eq!(
        (recipe.reduce.codec.name, recipe.reduce.bucket_mb, recipe.reduce.overlap),
        ("float", 4.0, Overlap::Auto)
    );
    assert_eq!((recipe.shuffling(), recipe.checkpoint.every()), (loaders::Shuffle::Full, "10m".parse().unwrap()));
    assert_eq!((recipe.loader.threads, recipe.loader.slots), (None, 0));
    assert_eq!((recipe.log.every, recipe.checkpoint.keep), (1, 3));
    assert_eq!(recipe.schedule.kind, ScheduleKind::Step(Step { milestones: vec![82.0, 123.0], gamma: None }));
    let OptimizerKind::Sgd(sgd) = &recipe.optimizer.kind else { panic!("{:?}", recipe.optimizer) };
    assert_eq!((sgd.momentum, sgd.nesterov, sgd.nesterov(), recipe.ema.decay), (Some(0.9), None, false, None));
}

#[test]
fn set_takes_toml_or_a_bare_string() {
    let recipe = with(&[
        "schedule.base_lr=0.4",
        "model=lenet",
        "data=2012",
        "eval_split = \"validation\"",
        "augment.train=[\"flip\"]",
        "reduce.overlap=false",
        "loader.threads=2",
        "seed=1",
        "seed=7",
    ])
    .unwrap();
    assert_eq!((recipe.schedule.base_lr, recipe.model.as_str(), recipe.seed), (0.4, "lenet", 7));
    assert_eq!((recipe.data.as_str(), recipe.eval_split.as_deref()), ("2012", Some("validation")));
    assert_eq!(recipe.augment.train, ["flip"]);
    assert_eq!((recipe.reduce.overlap, recipe.loader.threads), (Overlap::Off, Some(2)));
}

#[test]
fn a_written_recipe_reads_back_equal() {
    let sets = [
        "schedule.warmup_epochs=2.5",
        "schedule.warmup_from=base",
        "schedule.reference_batch=256",
        "label_smoothing=0.1",
        "data='a \"quoted\" \\ path'",
        "reduce.overlap=true",
        "loader.threads=3",
        "optimizer.kind=lars",
        "optimizer.eta=0.01",
        "optimizer.no_adapt=[\"*.bias\"]",
        "optimizer.clip_norm=2",
        "ema.decay=0.99",
    ];
    let mut recipe = with(&sets).unwrap();
    recipe.resolve(4).unwrap();
    let text = recipe.to_toml().unwrap();
    assert_eq!(Recipe::parse(&text, "written", &Changes::default()).unwrap().recipe, recipe);
    assert!(text.contains("workers = 4\n") && text.contains("milestones = [82, 123]\n"), "{text}");
    assert!(text.contains("momentum = 0.9\n"), "{text}");
}

/// An earlier version wrote these files, one for each kind of optimizer and schedule and a few others. Reading and
/// writing them again must give the same bytes.
#[test]
fn written_recipes_do_not_change() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/recipes");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let (text, ending) = (read(&path), path.extension().unwrap().to_str().unwrap());
        let same = match ending {
            "given" => Recipe::from_toml(&text).unwrap().to_toml().unwrap() == read(&path.with_extension("written")),
            _ => Recipe::from_toml(&text).unwrap().to_toml().unwrap() == text,
        };
        assert!(same, "{}", path.display());
        seen += 1;
    }
    assert!(seen > 20, "{seen} files");
}

#[test]
fn every_key_is_documented() {
    let paths: BTreeSet<&str> = keys::KEYS.iter().map(|key| key.path.as_str()).collect();
    assert!(paths.contains("optimizer.kind") && paths.contains("schedule.base_lr") && paths.contains("seed"));
    assert!(keys::KEYS.iter().all(|key| key.field.doc.len() > 5), "a key without documentation");
    assert_eq!(keys::table().lines().count(), 2 * keys::KEYS.len());
    assert!(keys::is_default("deterministic", "false") && !keys::is_default("deterministic", "true"));
    assert!(!keys::is_default("epochs", "1") && !keys::is_default("nothing", "1"), "no default");
    let momentum: Vec<_> = keys::KEYS.iter().filter(|key| key.path == "optimizer.momentum").collect();
    assert_eq!(momentum.iter().map(|key| key.owners.len()).collect::<Vec<_>>(), [2, 1], "lars has another default");
}

#[test]
fn unknown_keys_suggest_the_nearest() {
    unknown(&refused_text("momentum", "momentun"), "small.toml: optimizer.momentun", "\"optimizer.momentum\"");
    unknown(&refused_text("epochs", "epoch"), "small.toml: epoch", "\"epochs\"");
    unknown(&refused_text("[augment]", "[augmentation]"), "small.toml: augmentation", "\"augment.train\"");
    unknown(&refusal(&["base_lr=0.1"]), "--set base_lr=0.1", "\"schedule.base_lr\"");
    unknown(&refusal(&["colour=red"]), "--set colour=red", "trireme train --help");
    invalid(&refusal(&["optimizer={}"]), "--set optimizer={}", &["optimizer.NAME=value"]);
    for other_form in ["batch", "=3"] {
        let error = refusal(&[other_form]);
        assert!(matches!(&error, Error::Set { set } if set == other_form), "{error:?}");
    }
}

#[test]
fn unknown_names_suggest_the_nearest() {
    invalid(&refusal(&["model=resnet2"]), "--set model=resnet2", &["\"resnet2\"", "\"resnet20\""]);
    let nearest = did_you_mean("filp", &["flip"]);
    invalid(&refused_text("\"flip\"", "\"filp\""), "small.toml: augment.train", &["\"filp\"", &nearest]);
    let unlike = refused_text("\"pad_crop(4)\"", "\"padcrop(4)\"");
    invalid(&unlike, "small.toml: augment.train", &["\"padcrop(4)\"", "\"pad_crop\""]);
    let nearest = did_you_mean("cosin", &["cosine"]);
    invalid(&refusal(&["schedule.kind=cosin"]), "--set schedule.kind=cosin", &["\"cosin\"", &nearest]);
}

#[test]
fn wrong_types_name_file_and_key() {
    let string = refused_text("momentum = 0.9", "momentum = \"high\"");
    invalid(&string, "small.toml: optimizer.momentum", &["finite number", "got the string \"high\""]);
    for (set, expected, got) in [
        ("batch=many", "integer >= 1", "\"many\""),
        ("batch=-1", "integer >= 1", "-1"),
        ("batch='12'", "integer >= 1", "\"12\""),
        ("schedule.base_lr=nan", "finite number", "nan"),
        ("epochs=1.5", "integer >= 1", "1.5"),
        ("reduce.overlap=maybe", "\"auto\"", "\"maybe\""),
    ] {
        invalid_last(&[set], &[expected, got]);
    }
    invalid(&refused_text("train = [", "train = [1, "), "small.toml: augment.train", &["strings", "got [1, "]);
    let error = Recipe::parse("optimizer = 3", "f", &Changes::default()).unwrap_err();
    invalid(&error, "f: optimizer", &["[optimizer]", "got 3"]);
}

#[test]
fn numbers_that_are_too_large_are_refused_with_the_maximum() {
    let digits = "99999999999999999999";
    let error = refusal(&[&format!("batch={digits}")]);
    invalid(&error, &format!("--set batch={digits}"), &[digits, "9223372036854775807"]);
    for (set, parts) in [
        ("schedule.warmup_epochs=1e300", ["epochs = 160", "got 1e300"]),
        ("epochs=5000000000", ["4294967295", "got 5000000000"]),
        ("augment.sizes=[[0, 5000000000]]", ["4294967295", "got 5000000000"]),
    ] {
        invalid(&refusal(&[set]), &format!("--set {set}"), &parts);
    }
    assert_eq!(with(&["seed=5000000000"]).unwrap().seed, 5_000_000_000);
}

#[test]
fn missing_keys_and_broken_files() {
    missing_length(&refused_text("epochs = 160", ""));
    let error = refused_text("epochs = 160", "epochs = = 160");
    let Error::Syntax { file, why } = &error else { panic!("{error:?}") };
    assert_eq!(file, "small.toml");
    mentions(why, &["line 4"]);
    let error = Recipe::load(Path::new("no/such.toml"), &Changes::default()).unwrap_err();
    assert!(matches!(&error, Error::Absent { file, .. } if file == "no/such.toml"), "{error:?}");
}

#[test]
fn bad_values_are_named() {
    for (sets, parts) in [
        (&["batch=0"][..], &[">= 1", "got 0"][..]),
        (&["epochs=0"], &[">= 1", "got 0"]),
        (&["workers=0"], &[">= 1", "got 0"]),
        (&["schedule.base_lr=-0.1"], &[">= 0", "got -0.1"]),
        (&["schedule.milestones=[123, 82]"], &["ascend", "123", "82"]),
        (&["schedule.power=2"], &["polynomial", "kind = \"step\""]),
        (&["precision=bf61"], &["\"bf61\"", "\"f32\", \"bf16\", \"f16\"", &did_you_mean("bf61", &["bf16"])]),
        (
            &["reduce.codec=ternery"],
            &[
                "\"ternery\"",
                "\"float\", \"exact\", \"int8\", \"bf16\", \"ternary\"",
                &did_you_mean("ternery", &["ternary"]),
            ],
        ),
        (&["reduce.clip=2"], &["ternary", "reduce.codec = \"float\""]),
        (&["reduce.logits=true"], &["int8", "ternary", "reduce.codec = \"float\""]),
        (&["optimizer.momentum=1"], &["[0, 1)", "got 1"]),
        (&["optimizer.weight_decay=-1"], &[">= 0", "got -1"]),
        (&["label_smoothing=1"], &["[0, 1)", "got 1"]),
        (&["reduce.bucket_mb=0"], &["> 0", "got 0"]),
        (&["loader.threads=0"], &["1 to 1024", "got 0"]),
        (&["loader.threads=1025"], &["1 to 1024", "got 1025"]),
        (&["log.every=0"], &[">= 1", "got 0"]),
        (&["data="], &["empty", "--data DIR"]),
        (&["optimizer.kind=adadelta"], &["\"adadelta\"", "\"sgd\", \"adam\""]),
        (&["optimizer.kind=adam", "optimizer.momentum=0.5"], &["sgd", "rmsprop", "lars", "kind = \"adam\""]),
        (&["optimizer.eta=0.1"], &["lars", "kind = \"sgd\""]),
        (&["optimizer.kind=lars", "optimizer.nesterov=true"], &["sgd", "kind = \"lars\""]),
        (&["optimizer.kind=rmsprop", "optimizer.form=keras"], &["\"keras\"", "\"torch\", \"tf\""]),
        (&["optimizer.kind=rmsprop", "optimizer.eps=0"], &["> 0", "got 0"]),
        (&["optimizer.kind=rmsprop", "optimizer.alpha=1"], &["[0, 1)", "got 1"]),
        (&["optimizer.clip_norm=0"], &["> 0", "got 0"]),
        (&["optimizer.clip_value=-1"], &["> 0", "got -1"]),
        (&["optimizer.clip_norm=1e60"], &["f32", "got 1e60"]),
        (&["optimizer.clip_norm=1", "optimizer.clip_value=1"], &["clip_norm"]),
        (&["optimizer.momentum=0", "optimizer.nesterov=true"], &["optimizer.momentum > 0"]),
        (&["ema.decay=1"], &["0.999", "got 1"]),
        (&["ema.decay=0"], &["0.999", "got 0"]),
        (&["augment.train=[\"alternating_flip\"]", "balanced=true"], &["\"alternating_flip\"", "write \"flip\""]),
        (&["augment.train=[\"alternating_flip()\"]", "balanced=true"], &["\"alternating_flip\"", "write \"flip\""]),
        (&["augment.train=[\"alternating_flip\"]", "augment.repeats=2"], &["\"alternating_flip\"", "write \"flip\""]),
    ] {
        invalid_last(sets, parts);
    }
    // The batch is smaller than the number of workers.
    invalid(&refusal(&["workers=129"]), "--set workers=129", &["128 images", "129 workers"]);
}

#[test]
fn setting_a_kind_leaves_out_the_keys_of_the_old_one() {
    let Loaded { recipe, notes, .. } = changed(&["schedule.kind=cosine", "schedule.base_lr=0.2"], &[]).unwrap();
    assert_eq!((recipe.schedule.kind.name(), recipe.schedule.base_lr), ("cosine", 0.2));
    assert_eq!(notes.len(), 1, "{notes:?}");
    mentions(&notes[0], &["--set schedule.kind=cosine", "small.toml", "schedule.milestones = [82"]);
    let adam = changed(&["optimizer.kind=adam"], &[]).unwrap();
    mentions(&adam.notes[0], &["optimizer.momentum = 0.9"]);
    assert_eq!(changed(&["optimizer.kind=sgd"], &[]).unwrap().notes, Vec::<String>::new());
    // Keys given on the command line are never removed.
    invalid_last(&["schedule.kind=cosine", "schedule.gamma=0.5"], &["step", "kind = \"cosine\""]);
}

#[test]
fn keys_and_sections_can_be_unset() {
    let plain = changed(&[], &["optimizer.momentum", "optimizer.nesterov", "ema"]).unwrap().recipe;
    let sgd = OptimizerKind::Sgd(Default::default());
    assert_eq!(plain.optimizer.kind, sgd, "an absent key can be unset");
    let set_after = changed(&["optimizer.momentum=0.5"], &["optimizer.momentum"]).unwrap().recipe;
    assert!(toml::to_string(&set_after).unwrap().contains("momentum = 0.5"));
    let refused = |unset: &str| changed(&[], &[unset]).unwrap_err();
    invalid(&refused("batch"), "--unset batch", &["--set batch="]);
    missing_length(&refused("epochs"));
    unknown(&refused("schedule.warmup_epoch"), "--unset schedule.warmup_epoch", "\"schedule.warmup_epochs\"");
    unknown(&refused("lr"), "--unset lr", "\"schedule.base_lr\"");
}

#[test]
fn names_of_other_programs_lead_to_ours() {
    unknown(&refusal(&["lr=0.1"]), "--set lr=0.1", "\"schedule.base_lr\"");
    invalid_last(&["schedule.kind=onecycle"], &["\"onecycle\"", &did_you_mean("onecycle", &["one_cycle"])]);
    // The suggestion comes after the list of kinds.
    let error = refusal(&["schedule.kind=OneCycleLR"]);
    assert!(matches!(&error, Error::Value { why, .. } if why.ends_with("\"one_cycle\"")), "{error:?}");
    let suggestion = hint::of_transform("horizontal_flip");
    invalid_last(&["augment.train=[\"horizontal_flip\"]"], &["\"horizontal_flip\"", &suggestion]);
}

#[test]
fn keys_of_codecs_belong_to_codecs() {
    let ternary = "reduce.codec=ternary";
    let all = ["reduce.clip=0", "reduce.logits=true", "reduce.min_elements=0", "reduce.exempt=[\"conv1.*\"]"];
    with(&[&[ternary], all.as_slice()].concat()).unwrap();
    with(&["reduce.codec=bf16", "reduce.error_feedback=true"]).unwrap();
    for (sets, parts) in [
        (&["reduce.codec=int8", "reduce.clip=2"][..], &["ternary", "reduce.codec = \"int8\""][..]),
        (&["reduce.codec=exact", "reduce.min_elements=9"], &["int8", "ternary", "reduce.codec = \"exact\""]),
        (&["reduce.codec=int8", "reduce.error_feedback=true"], &["reduce.codec = \"int8\"", "without bias"]),
        (&["reduce.codec=float", "reduce.error_feedback=false"], &["bf16", "ternary", "reduce.codec = \"float\""]),
        (&[ternary, "reduce.clip=-1"], &[">= 0", "got -1"]),
        (&[ternary, "reduce.clip=0", "reduce.error_feedback=true"], &["reduce.clip = 0"]),
        (&["precision=f16", ternary, "reduce.error_feedback=true"], &["precision = \"f16\"", "bf16"]),
    ] {
        invalid_last(sets, parts);
    }
    for (codec, most) in [("int8", 256), ("ternary", 32_767), ("exact", 65_536)] {
        let sets =
            |workers: usize| ["batch=100000".into(), format!("reduce.codec={codec}"), format!("workers={workers}")];
        with(&sets(most).each_ref().map(String::as_str)).unwrap();
        let parts = [format!("\"{codec}\""), format!("{most} workers"), format!("got {}", most + 1)];
        invalid_last(&sets(most + 1).each_ref().map(String::as_str), &parts.each_ref().map(String::as_str));
    }
}

#[test]
fn resolving_settles_workers() {
    let mut recipe = with(&[]).unwrap();
    recipe.resolve(3).unwrap();
    assert_eq!(recipe.workers, Some(3));
    recipe.resolve(2).unwrap();
    assert_eq!(recipe.workers, Some(3));
    invalid(&recipe.resolve(4).unwrap_err(), "workers", &["4 ranks", "3 workers"]);
    invalid(&with(&["batch=2"]).unwrap().resolve(3).unwrap_err(), "batch", &["2 images", "3 workers"]);
}

#[test]
fn the_splits_to_score() {
    // Each split has one image, or none if its name begins with "empty ".
    let manifest = |splits: &[&str]| {
        let split = |name: &&str| match name.strip_prefix("empty ") {
            Some(name) => (name.to_string(), SplitManifest::default()),
            None => (name.to_string(), SplitManifest { count: 1, ..SplitManifest::default() }),
        };
        Manifest { splits: splits.iter().map(split).collect(), ..Manifest::default() }
    };
    let of_run = |wanted, splits: &[&str]| {
        let chosen = ScoredSplits::of_run(wanted, &manifest(splits)).map_err(|e| e.to_string())?;
        let ScoredSplits { watched, at_end } = chosen;
        Ok::<_, String>([watched, at_end].map(Option::unwrap_or_default))
    };
    let found = |watched: &str, at_end: &str| Ok([watched.to_string(), at_end.to_string()]);
    assert_eq!(of_run(None, &["train", "validation", "test"]), found("validation", "test"));
    assert_eq!(of_run(Some("validation"), &["train", "validation", "test"]), found("validation", "test"));
    assert_eq!(of_run(Some("test"), &["train", "validation", "test"]), found("test", ""));
    assert_eq!(of_run(None, &["train", "test"]), found("test", ""));
    assert_eq!(of_run(None, &["train", "validation"]), found("validation", ""));
    assert_eq!(of_run(None, &["train"]), found("", ""));
    assert_eq!(of_run(Some("train"), &["train", "test"]), found("train", ""));
    // Empty splits count as missing unless the recipe names them.
    assert_eq!(of_run(None, &["train", "empty validation", "test"]), found("test", ""));
    assert_eq!(of_run(None, &["train", "validation", "empty test"]), found("validation", ""));
    assert_eq!(of_run(None, &["train", "empty validation", "empty test"]), found("", ""));
    assert_eq!(of_run(Some("test"), &["train", "validation", "empty test"]), found("test", ""));
    let splits = ["test", "train"];
    let error = ScoredSplits::of_run(Some("tset"), &manifest(&splits)).unwrap_err();
    invalid(&error, "eval_split", &["\"tset\"", &did_you_mean("tset", &splits)]);
    let judging = |splits: &[&str]| evaluation_split(None, &manifest(splits)).unwrap().unwrap_or_default();
    assert_eq!(judging(&["train", "validation", "test"]), "test");
    assert_eq!(judging(&["train", "validation", "empty test"]), "validation");
    assert_eq!([judging(&["train", "validation"]), judging(&["train"])], ["validation", ""]);
}

#[test]
fn weight_decay_spares_by_pattern() {
    let optimizer = with(&[]).unwrap().optimizer;
    assert_eq!(optimizer.decay_of("layer1.0.conv1.weight", &[16, 16, 3, 3]), 1e-4);
    assert_eq!(optimizer.decay_of("fc.bias", &[10]), 0.0);
    assert_eq!(optimizer.decay_of("layer1.0.bn2.weight", &[16]), 0.0);
    assert!(optimizer.adapts("fc.bias", &[10]), "only lars has exceptions");
}

/// Parameters with one dimension, such as biases, are exempt unless patterns select others.
#[test]
fn lars_leaves_out_parameters_with_one_dimension() {
    let lars = |no_adapt| OptimizerKind::Lars(Lars { no_adapt, ..Lars::default() });
    let mut optimizer = Optimizer { weight_decay: 1e-4, ..Optimizer::new(lars(None)) };
    for (name, shape, wanted) in [("fc.weight", &[10, 64][..], true), ("fc.bias", &[10], false)] {
        assert_eq!((optimizer.adapts(name, shape), optimizer.decay_of(name, shape) > 0.0), (wanted, wanted), "{name}");
    }
    optimizer.kind = lars(Some(vec!["fc.*".into()]));
    assert!(!optimizer.adapts("fc.weight", &[10, 64]) && optimizer.adapts("bn1.weight", &[16]));
    assert_eq!(optimizer.decay_of("bn1.weight", &[16]), 0.0, "no_decay has its own default");
    optimizer.no_decay = Some(Vec::new());
    assert_eq!(optimizer.decay_of("bn1.weight", &[16]), 1e-4);
}
