//! The developer switches: kernels from files, passes without replay, and a wait after every kernel.

use std::fs;
use std::path::Path;

use backend::cuda::Precision;
use engine::optim::OptimizerSpec;
use loaders::ImageSpec;

use crate::stdout_of;
use crate::steps::{graph, optimizer, set_gradients};
use support::numerics::cuda;
use support::setting::Setting;
use support::{emulator, gpu};

const LENET: &str = r#"
model = "lenet"
epochs = 1
batch = 8
deterministic = true
schedule.base_lr = 0.01
"#;

fn setting() -> Setting {
    Setting::new(LENET, ImageSpec::new(28, 28, 1), [43, 16])
}

const STEPS: &[&str] = &["--max-steps", "5"];

fn trained(setting: &Setting, out: &str, variables: &[(&str, &str)]) -> String {
    gpu::train(setting, out, 1, STEPS, variables).succeeded().stderr
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn kernels_come_from_files() {
    let setting = setting();
    let variants = setting.folder.path().join("variants");
    fs::create_dir_all(&variants).expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/backend/src/cuda/kernels/loss.cu");
    let (source, whole) = (fs::read_to_string(source).expect("the source"), "*not_finite ? ");
    assert_eq!(source.matches(whole).count(), 1);
    // increases each loss by 100
    let text = source.replace("sums[0] = *not_finite", "loss += 100.0 * (double)rows;\n        sums[0] = *not_finite");
    fs::write(variants.join("loss.cu"), text).expect("written");
    let (cache, folder) = (setting.folder.at("cache"), variants.display().to_string());
    let own = [("TRIREME_CACHE", &cache[..])];
    let from_files = [own[0], ("TRIREME_KERNELS", &folder)];
    trained(&setting, "before", &own);
    let said = trained(&setting, "variant", &from_files);
    assert!(said.contains("TRIREME_KERNELS") && said.contains(&folder), "{said}");
    trained(&setting, "after", &own);
    let losses = |out: &str| setting.losses(out);
    assert_eq!(losses("after"), losses("before"), "the cache returned the changed kernel");
    for (got, want) in losses("variant").iter().zip(losses("before")) {
        assert!((got - want - 100.0).abs() < 1e-3, "loss {got} with the changed kernel, {want} with the built-in one");
    }
    fs::rename(variants.join("loss.cu"), variants.join("lose.cu")).expect("renamed");
    let ended = gpu::train(&setting, "unknown", 1, STEPS, &from_files);
    ended.failed(1, &["TRIREME_KERNELS", "lose.cu", "loss.cu"]);
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn passes_that_are_not_replayed_give_the_same_bits() {
    let setting = setting();
    let quiet = trained(&setting, "usual", &[]);
    assert!(!quiet.contains("TRIREME_"), "{quiet}");
    for switch in ["TRIREME_NO_GRAPH", "TRIREME_CUDA_SYNC"] {
        let said = trained(&setting, switch, &[(switch, "1")]);
        assert!(said.contains(&format!("{switch}=1")), "{said}");
        assert!(setting.model(switch) == setting.model("usual"), "{switch}: model.h5 differs");
        stdout_of("switches::calls_of_five_steps", &[(switch, "1")]);
    }
}

/// From some driver call on, every call fails. If this call is a wait after a kernel, the message names the kernel.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_kernel_that_fails_is_named() {
    let setting = setting();
    let said = |call: u32, variables: &[(&str, &str)]| {
        let fault = format!("{call}:719");
        let variables = [&[("TRIREME_EMULATED_FAULT", &fault[..])], variables].concat();
        gpu::train(&setting, &format!("out{call}{}", variables.len()), 1, STEPS, &variables).stderr
    };
    let names_it = |said: &str| said.contains("cuStreamSynchronize for ") && !said.contains("the work before");
    // tries pairs of adjacent calls, since about every second call is a wait after a kernel; their positions depend on
    // the kernels of a step
    let calls = (450..1000).step_by(75).flat_map(|call| [call, call + 1]);
    let mut tried = calls.map(|call| (call, said(call, &[("TRIREME_CUDA_SYNC", "1")])));
    let found = tried.find(|(_, said)| names_it(said));
    let (call, told) = found.expect("either no wait after a kernel failed, or no message named the kernel");
    assert!(!told.contains("TRIREME_CUDA_SYNC=1, which"), "the switch is already set: {told}");
    assert!(!names_it(&said(call, &[])), "without the switch, call {call} must not be a wait after a kernel");
}

#[test]
#[ignore = "run with settings"]
fn calls_of_five_steps() {
    let cuda = cuda(Precision::F32);
    let calls = || {
        ["cuGraphLaunch", "cuLaunchKernel", "cuStreamSynchronize"].map(|name| emulator::calls(name).expect("counted"))
    };
    let mut graph = graph(cuda);
    let mut optimizer = optimizer(&graph, &OptimizerSpec::sgd(0.9, false, 0.0));
    let before = calls();
    for step in 0..5 {
        set_gradients(&mut graph, step);
        optimizer.step(&mut graph, 0.01, None).expect("a step");
    }
    let [graphs, kernels, waits] = [0, 1, 2].map(|i| calls()[i] - before[i]);
    assert_eq!(graphs, 0, "a pass was replayed");
    assert!(kernels >= 25, "{kernels} kernels for 5 steps of 5 buckets");
    if std::env::var("TRIREME_CUDA_SYNC").is_ok() {
        assert!(waits >= kernels, "{waits} waits after {kernels} kernels");
    }
}
