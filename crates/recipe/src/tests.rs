//! Recipes read, changed, written, and refused: each refusal by the words that a user needs.

use std::collections::BTreeSet;
use std::path::Path;

use engine::optim::schedule::{ScheduleKind, Step};
use engine::optim::{Lars, OptimizerKind};

use super::*;

const KNOWN: KnownNames =
    KnownNames { models: &["lenet", "cifarnet", "resnet20"], transforms: &["normalize", "pad_crop", "flip"] };

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
    let [sets, unsets] = [sets, unsets].map(|list| list.iter().map(|text| text.to_string()).collect());
    Recipe::parse(SMALL, "small.toml", &Changes { sets, unsets }, &KNOWN)
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
    assert!(refusal(&["cuda.precision=f16", "optimizer.sam_rho=0.05"]).contains("bf16"));
}

fn refusal(sets: &[&str]) -> String {
    with(sets).unwrap_err().to_string()
}

fn refused_text(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    Recipe::parse(&SMALL.replace(from, to), "small.toml", &Changes::default(), &KNOWN).unwrap_err().to_string()
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
    assert_eq!(Recipe::parse(&text, "written", &Changes::default(), &KNOWN).unwrap().recipe, recipe);
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
    let text = refused_text("momentum", "momentun");
    assert_eq!(text, "small.toml: optimizer.momentun: unknown key; did you mean \"optimizer.momentum\"?");
    assert!(refused_text("epochs", "epoch").ends_with("did you mean \"epochs\"?"));
    assert!(refused_text("[augment]", "[augmentation]").contains("augmentation: unknown key"));
    assert_eq!(refusal(&["base_lr=0.1"]), "--set base_lr=0.1: unknown key; did you mean \"schedule.base_lr\"?");
    assert!(refusal(&["colour=red"]).contains("trireme train --help"));
    assert!(refusal(&["optimizer={}"]).contains("is a section"));
    assert!(refusal(&["batch"]).contains("expected key=value"));
    assert!(refusal(&["=3"]).contains("expected key=value"));
}

#[test]
fn unknown_names_suggest_the_nearest() {
    assert!(refusal(&["model=resnet2"]).ends_with("did you mean \"resnet20\"?"));
    assert!(refused_text("\"flip\"", "\"filp\"").ends_with("did you mean \"flip\"?"));
    let text = refused_text("\"pad_crop(4)\"", "\"padcrop(4)\"");
    assert!(text.starts_with("small.toml: augment.train: \"padcrop(4)\""), "{text}");
    let text = refusal(&["schedule.kind=cosin"]);
    assert!(text.ends_with("did you mean \"cosine\"?"), "{text}");
}

#[test]
fn wrong_types_name_file_and_key() {
    let text = refused_text("momentum = 0.9", "momentum = \"high\"");
    assert_eq!(text, "small.toml: optimizer.momentum: expected a finite number, got the string \"high\"");
    assert_eq!(refusal(&["batch=many"]), "--set batch=many: expected an integer >= 1, got the string \"many\"");
    assert_eq!(refusal(&["batch=-1"]), "--set batch=-1: expected an integer >= 1, got -1");
    let digits = "99999999999999999999";
    let large = format!("--set batch={digits}: {digits} is too large; an integer is at most 9223372036854775807");
    assert_eq!(refusal(&[&format!("batch={digits}")]), large);
    assert_eq!(refusal(&["batch='12'"]), "--set batch='12': expected an integer >= 1, got the string \"12\"");
    assert!(refusal(&["schedule.base_lr=nan"]).contains("a finite number"));
    assert!(refusal(&["schedule.warmup_epochs=1e300"]).ends_with("got 1e300"));
    assert!(refusal(&["epochs=1.5"]).contains("an integer"));
    assert_eq!(refusal(&["epochs=5000000000"]), "--set epochs=5000000000: must be <= 4294967295, got 5000000000");
    let sizes = refusal(&["augment.sizes=[[0, 5000000000]]"]);
    assert!(sizes.ends_with("]]: must be <= 4294967295, got 5000000000"), "{sizes}");
    assert_eq!(with(&["seed=5000000000"]).unwrap().seed, 5_000_000_000);
    assert!(refusal(&["reduce.overlap=maybe"]).contains("\"auto\""));
    assert!(refused_text("train = [", "train = [1, ").contains("augment.train: expected a list of strings"));
    let text = Recipe::parse("optimizer = 3", "f", &Changes::default(), &KNOWN).unwrap_err().to_string();
    assert_eq!(text, "f: optimizer: expected a section [optimizer], got 3");
}

#[test]
fn missing_keys_and_broken_files() {
    assert!(refused_text("epochs = 160", "").starts_with("small.toml: epochs: missing; it is an integer"));
    let text = refused_text("epochs = 160", "epochs = = 160");
    assert!(text.contains("small.toml: not valid TOML") && text.contains("line 4"), "{text}");
    let missing = Recipe::load(std::path::Path::new("no/such.toml"), &Changes::default(), &KNOWN).unwrap_err();
    assert!(missing.to_string().contains("no/such.toml"));
}

#[test]
fn bad_values_are_named() {
    for (set, words) in [
        ("batch=0", "must be >= 1"),
        ("epochs=0", "must be >= 1"),
        ("workers=0", "must be >= 1"),
        ("workers=129", "128 images cannot be shared by 129 workers"),
        ("schedule.base_lr=-0.1", "must be >= 0, got -0.1"),
        ("schedule.milestones=[123, 82]", "must ascend, but 123 is followed by 82"),
        ("schedule.power=2", "belongs to kind polynomial, but kind = \"step\""),
        ("precision=bf61", "which has \"f32\", \"bf16\", \"f16\"; did you mean \"bf16\"?"),
        (
            "reduce.codec=ternery",
            "which has \"float\", \"exact\", \"int8\", \"bf16\", \"ternary\"; did you mean \"ternary\"?",
        ),
        ("reduce.clip=2", "belongs to codec ternary, but reduce.codec = \"float\""),
        ("reduce.logits=true", "belongs to codec int8 or ternary, but reduce.codec = \"float\""),
        ("optimizer.momentum=1", "in [0, 1), got 1"),
        ("optimizer.weight_decay=-1", ">= 0"),
        ("label_smoothing=1", "in [0, 1)"),
        ("reduce.bucket_mb=0", "> 0"),
        ("loader.threads=0", "from 1 to 1024"),
        ("loader.threads=1025", "from 1 to 1024"),
        ("log.every=0", ">= 1"),
        ("data=", "data=: is empty"),
    ] {
        let text = refusal(&[set]);
        assert!(text.contains(words), "{set}: {text}");
    }
    for (sets, words) in [
        (&["optimizer.kind=adadelta"][..], "not available in this build, which has \"sgd\", \"adam\""),
        (
            &["optimizer.kind=adam", "optimizer.momentum=0.5"],
            "momentum=0.5: belongs to kind sgd or rmsprop or lars, but",
        ),
        (&["optimizer.eta=0.1"], "--set optimizer.eta=0.1: belongs to kind lars, but kind = \"sgd\""),
        (&["optimizer.kind=lars", "optimizer.nesterov=true"], "belongs to kind sgd, but kind = \"lars\""),
        (&["optimizer.kind=rmsprop", "optimizer.form=keras"], "which has \"torch\", \"tf\""),
        (&["optimizer.kind=rmsprop", "optimizer.eps=0"], "must be > 0, got 0"),
        (&["optimizer.kind=rmsprop", "optimizer.alpha=1"], "in [0, 1), got 1"),
        (&["optimizer.clip_norm=0"], "must be > 0, got 0"),
        (&["optimizer.clip_value=-1"], "must be > 0, got -1"),
        (&["optimizer.clip_norm=1e60"], "f32, got 1e60"),
        (&["optimizer.clip_norm=1", "optimizer.clip_value=1"], "cannot be combined with clip_norm; choose one"),
        (&["ema.decay=1"], "0.999, got 1"),
        (&["ema.decay=0"], "0.999, got 0"),
    ] {
        let text = refusal(sets);
        assert!(text.contains(words), "{sets:?}: {text}");
    }
    let text = refusal(&["optimizer.momentum=0", "optimizer.nesterov=true"]);
    assert!(text.contains("--set optimizer.nesterov=true: needs optimizer.momentum > 0"), "{text}");
}

#[test]
fn a_kind_that_changes_leaves_out_the_keys_of_the_old_one() {
    let Loaded { recipe, notes, .. } = changed(&["schedule.kind=cosine", "schedule.base_lr=0.2"], &[]).unwrap();
    assert_eq!((recipe.schedule.kind.name(), recipe.schedule.base_lr), ("cosine", 0.2));
    assert_eq!(notes.len(), 1, "{notes:?}");
    for part in ["--set schedule.kind=cosine: ignores keys of another kind in small.toml", "schedule.milestones = [82"]
    {
        assert!(notes[0].contains(part), "{notes:?}");
    }
    let adam = changed(&["optimizer.kind=adam"], &[]).unwrap();
    assert!(adam.notes[0].contains("optimizer.momentum = 0.9"), "{:?}", adam.notes);
    assert_eq!(changed(&["optimizer.kind=sgd"], &[]).unwrap().notes, Vec::<String>::new());
    // Keys given on the command line are never removed.
    assert!(refusal(&["schedule.kind=cosine", "schedule.gamma=0.5"]).contains("belongs to kind"));
}

#[test]
fn keys_can_be_taken_out() {
    let plain = changed(&[], &["optimizer.momentum", "optimizer.nesterov", "ema"]).unwrap().recipe;
    let sgd = OptimizerKind::Sgd(Default::default());
    assert_eq!(plain.optimizer.kind, sgd, "what is not there is no mistake");
    let set_after = changed(&["optimizer.momentum=0.5"], &["optimizer.momentum"]).unwrap().recipe;
    assert!(toml::to_string(&set_after).unwrap().contains("momentum = 0.5"));
    for (unset, words) in [
        ("batch", "--unset batch: every recipe needs it; give --set batch=VALUE instead"),
        ("epochs", "epochs: missing; it is an integer: passes over the training split; or give steps"),
        (
            "schedule.warmup_epoch",
            "--unset schedule.warmup_epoch: unknown key; did you mean \"schedule.warmup_epochs\"?",
        ),
        ("lr", "--unset lr: unknown key; here it is \"schedule.base_lr\""),
    ] {
        let text = changed(&[], &[unset]).unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn words_from_elsewhere_lead_to_ours() {
    for (set, words) in [
        ("lr=0.1", "--set lr=0.1: unknown key; here it is \"schedule.base_lr\""),
        ("schedule.kind=onecycle", "did you mean \"one_cycle\"?"),
        ("schedule.kind=OneCycleLR", "the most similar kind is \"one_cycle\""),
        ("augment.train=[\"horizontal_flip\"]", "here it is \"flip\""),
    ] {
        let text = refusal(&[set]);
        assert!(text.contains(words), "{set}: {text}");
    }
}

#[test]
fn keys_of_codecs_belong_to_codecs() {
    let ternary = "reduce.codec=ternary";
    let all = ["reduce.clip=0", "reduce.logits=true", "reduce.min_elements=0", "reduce.exempt=[\"conv1.*\"]"];
    with(&[&[ternary], all.as_slice()].concat()).unwrap();
    with(&["reduce.codec=bf16", "reduce.error_feedback=true"]).unwrap();
    for (sets, words) in [
        (["reduce.codec=int8", "reduce.clip=2"], "belongs to codec ternary, but reduce.codec = \"int8\""),
        (["reduce.codec=exact", "reduce.min_elements=9"], "belongs to codec int8 or ternary"),
        (["reduce.codec=int8", "reduce.error_feedback=true"], "which rounds without bias"),
        (["reduce.codec=float", "reduce.error_feedback=false"], "belongs to codec bf16 or ternary"),
        ([ternary, "reduce.clip=-1"], "must be >= 0, got -1"),
    ] {
        let text = refusal(&sets);
        assert!(text.contains(words), "{sets:?}: {text}");
    }
    let text = refusal(&[ternary, "reduce.clip=0", "reduce.error_feedback=true"]);
    assert!(text.contains("has no effect with reduce.clip = 0"), "{text}");
    let text = refusal(&["precision=f16", ternary, "reduce.error_feedback=true"]);
    assert!(text.contains("multiplied by a scale that changes"), "{text}");
    for (codec, most) in [("int8", 256), ("ternary", 32_767), ("exact", 65_536)] {
        let sets =
            |workers: usize| ["batch=100000".into(), format!("reduce.codec={codec}"), format!("workers={workers}")];
        let sets = |workers| with(&sets(workers).each_ref().map(String::as_str));
        sets(most).unwrap();
        let text = sets(most + 1).unwrap_err().to_string();
        assert!(text.contains(&format!("at most {most} workers, got {}", most + 1)), "{text}");
    }
}

#[test]
fn resolving_settles_workers() {
    let mut recipe = with(&[]).unwrap();
    recipe.resolve(3).unwrap();
    assert_eq!(recipe.workers, Some(3));
    recipe.resolve(2).unwrap();
    assert_eq!(recipe.workers, Some(3));
    let text = recipe.resolve(4).unwrap_err().to_string();
    assert!(text.contains("4 ranks for 3 workers"), "{text}");
    let text = with(&["batch=2"]).unwrap().resolve(3).unwrap_err().to_string();
    assert!(text.contains("2 images cannot be shared by 3 workers"), "{text}");
}

#[test]
fn the_splits_to_score() {
    let of_run = |wanted, splits: &[&str]| {
        let ScoredSplits { watched, at_end } = ScoredSplits::of_run(wanted, splits).map_err(|e| e.to_string())?;
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
    assert!(of_run(Some("tset"), &["train", "test"]).unwrap_err().ends_with("did you mean \"test\"?"));
    let judging = |splits: &[&str]| evaluation_split(None, splits).unwrap().unwrap_or_default();
    assert_eq!(judging(&["train", "validation", "test"]), "test");
    assert_eq!([judging(&["train", "validation"]), judging(&["train"])], ["validation", ""]);
}

#[test]
fn weight_decay_spares_by_pattern() {
    let optimizer = with(&[]).unwrap().optimizer;
    assert_eq!(optimizer.decay_of("layer1.0.conv1.weight", &[16, 16, 3, 3]), 1e-4);
    assert_eq!(optimizer.decay_of("fc.bias", &[10]), 0.0);
    assert_eq!(optimizer.decay_of("layer1.0.bn2.weight", &[16]), 0.0);
    assert!(optimizer.adapts("fc.bias", &[10]), "kinds other than lars ask for nothing of it");
}

/// Biases and batch norm are exempt unless patterns say otherwise.
#[test]
fn lars_spares_what_has_one_dimension() {
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
