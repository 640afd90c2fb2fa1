//! The arrows between modules: a new module is a line here.

/// For each module, the others that it may name; `a::b` allows that part of `a` alone. A module goes by the longest of these names that
/// its own begins with. Modules of `loaders` and `data-tools` stand below `loaders` and `data_tools`. Within one module, `a` means what
/// of it has no line of its own.
pub const ARROWS: &[(&str, &[&str])] = &[
    ("simd", &[]),
    ("sync", &[]),
    ("bf16", &["simd"]),
    ("code_spec", &[]),
    ("cores", &[]),
    ("device_region", &[]),
    ("schema", &[]),
    ("screen", &[]),
    ("environment", &[]),
    ("signals", &[]),
    ("backend", &["backend::op", "bf16", "code_spec", "device_region", "schema", "simd"]),
    ("backend::op", &["backend", "simd"]),
    ("backend::reference", &["backend", "backend::op", "code_spec", "device_region"]),
    ("backend::cpu", &["backend", "backend::op", "bf16", "code_spec", "device_region", "simd"]),
    ("backend::cuda", &["backend", "backend::op", "bf16", "code_spec", "device_region"]),
    ("comm", &["bf16", "code_spec", "device_region", "environment", "screen", "simd", "sync"]),
    ("checkpoint", &["backend::op", "environment"]),
    ("interop", &["backend::op", "checkpoint", "nn::spec"]),
    ("report", &["screen"]),
    ("nn", &["backend"]),
    ("models", &["nn::spec"]),
    ("optim", &["backend", "nn", "schema"]),
    ("recipe", &["backend::Precision", "comm::codec", "optim", "schema"]),
    ("error", &["backend", "checkpoint", "comm", "interop", "nn", "optim", "recipe", "report"]),
    ("device", &["backend"]),
    // the loop, and what it rests on
    ("train", TRAIN),
    ("train::save", SAVE),
    ("train::init", INIT),
    ("train::plan", PLAN),
    ("train::strategy", STRATEGY),
    ("train::evaluate", EVALUATE),
    ("train::reduce", REDUCE),
    ("train::agree", AGREE),
    ("train::device_input", BELOW_TRAIN),
    ("train::observe", BELOW_TRAIN),
    ("eval", ABOVE_TRAIN),
    ("bench", ABOVE_TRAIN),
    ("doctor", &["backend", "bench", "comm", "cores", "device", "error", "launch", "train"]),
    ("sweep", &["error", "models", "recipe", "report", "screen", "signals", "train"]),
    ("libraries", &["checkpoint", "comm", "launch"]),
    (
        "launch",
        &["backend", "bench", "comm", "cores", "device", "doctor", "error", "eval", "nn", "recipe", "screen", "train"],
    ),
    (
        "cli",
        &[
            "backend::Precision",
            "bench",
            "cores",
            "device",
            "doctor",
            "error",
            "eval",
            "interop",
            "launch",
            "libraries",
            "models",
            "nn",
            "recipe",
            "report",
            "screen",
            "sweep",
            "train",
        ],
    ),
    ("main", &["cli", "comm", "environment", "screen", "signals"]),
    ("loaders", &[]),
    ("loaders::file", &["loaders"]),
    ("loaders::format", &["loaders", "loaders::file"]),
    ("loaders::decode", &["loaders", "loaders::format"]),
    ("loaders::storage", &["loaders", "loaders::decode", "loaders::file", "loaders::format"]),
    ("loaders::order", &["loaders"]),
    ("loaders::transform", &["loaders", "loaders::decode", "loaders::format"]),
    (
        "loaders::ring",
        &["loaders", "loaders::decode", "loaders::format", "loaders::order", "loaders::storage", "loaders::transform"],
    ),
    ("data_tools", &[]),
    ("data_tools::image", &["data_tools"]),
    ("data_tools::kinds", &["data_tools"]),
    ("data_tools::inspect", &["data_tools", "data_tools::image"]),
    ("data_tools::reshape", &["data_tools", "data_tools::convert", "data_tools::image"]),
    ("data_tools::convert", &["data_tools", "data_tools::image", "data_tools::inspect", "data_tools::kinds"]),
];

/// What training may name, and more.
macro_rules! below_train {
    ($($more:literal),*) => {
        &[
            "backend", "checkpoint", "comm", "cores", "device", "environment", "error", "interop", "models", "nn", "optim", "recipe",
            "report", "screen", "signals"
            $(, $more)*
        ]
    };
}

const BELOW_TRAIN: &[&str] = below_train!();
const AGREE: &[&str] = below_train!("train::observe");
const REDUCE: &[&str] = below_train!("train::agree", "train::observe");
const STRATEGY: &[&str] = below_train!("train::reduce");
const EVALUATE: &[&str] = below_train!("train::agree", "train::device_input", "train::observe");
const SAVE: &[&str] = below_train!("sync", "train::agree", "train::observe", "train::plan", "train::reduce");
const INIT: &[&str] = below_train!("interop", "train::agree", "train::plan", "train::save");
const TRAIN: &[&str] = below_train!(
    "train::agree",
    "train::device_input",
    "train::evaluate",
    "train::init",
    "train::observe",
    "train::plan",
    "train::reduce",
    "train::save",
    "train::strategy"
);
const ABOVE_TRAIN: &[&str] = below_train!("train");
/// No MPI.
const PLAN: &[&str] = &[
    "backend",
    "checkpoint",
    "cores",
    "device",
    "error",
    "interop",
    "models",
    "nn",
    "optim",
    "recipe",
    "report",
    "train::device_input",
    "train::evaluate",
    "train::observe",
    "train::reduce",
    "train::strategy",
];
