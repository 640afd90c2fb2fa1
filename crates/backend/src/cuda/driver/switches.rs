//! Switches for developers, read once from the environment: kernels from files, no captured passes, a wait after every
//! call.

use std::path::PathBuf;
use std::sync::OnceLock;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// TRIREME_KERNELS=DIR: kernel sources in DIR replace the built-in ones of the same name.
    pub kernels: Option<PathBuf>,
    /// TRIREME_NO_GRAPH=1: every pass is enqueued call by call, and none is captured as a graph.
    pub no_graph: bool,
    /// TRIREME_CUDA_SYNC=1: the host waits after every kernel and every call of cuDNN and cuBLASLt, and an error names
    /// the call. Nothing can be captured then.
    pub sync: bool,
}

impl Switches {
    fn read(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Self {
        let on = |name: &str| variable(name).is_some_and(|value| value == "1");
        let sync = on("TRIREME_CUDA_SYNC");
        let kernels = variable("TRIREME_KERNELS").filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { kernels, no_graph: sync || on("TRIREME_NO_GRAPH"), sync }
    }

    /// Returns a note for the start of the log for each switch that is set.
    pub fn notes(&self) -> Vec<String> {
        let kernels = self.kernels.as_deref().map(|folder| {
            format!("note: TRIREME_KERNELS: kernel sources in {} replace the built-in ones", folder.display())
        });
        let sync = "note: TRIREME_CUDA_SYNC=1: the host waits after every kernel, no pass is replayed as a CUDA graph, and timings are \
                    meaningless";
        let no_graph =
            "note: TRIREME_NO_GRAPH=1: no pass is replayed as a CUDA graph, so every step enqueues each kernel";
        let others = [(self.sync, sync), (self.no_graph && !self.sync, no_graph)];
        kernels
            .into_iter()
            .chain(others.into_iter().filter(|(set, _)| *set).map(|(_, note)| note.to_string()))
            .collect()
    }
}

/// Returns the switches of this process.
pub fn switches() -> &'static Switches {
    static SWITCHES: OnceLock<Switches> = OnceLock::new();
    SWITCHES.get_or_init(|| Switches::read(|name| std::env::var_os(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Switches {
        Switches::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn a_switch_is_on_only_if_its_variable_is_1() {
        assert_eq!(of(&[]), Switches::default());
        assert_eq!(
            of(&[("TRIREME_NO_GRAPH", "0"), ("TRIREME_CUDA_SYNC", ""), ("TRIREME_KERNELS", "")]),
            Switches::default()
        );
        assert!(of(&[("TRIREME_NO_GRAPH", "1")]).no_graph);
        let sync = of(&[("TRIREME_CUDA_SYNC", "1")]);
        assert!(sync.sync && sync.no_graph, "a pass that is recorded cannot be waited for");
    }

    #[test]
    fn each_switch_that_is_set_has_one_note() {
        assert_eq!(of(&[]).notes(), [""; 0]);
        let all =
            of(&[("TRIREME_NO_GRAPH", "1"), ("TRIREME_CUDA_SYNC", "1"), ("TRIREME_KERNELS", "/variants/a")]).notes();
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("/variants/a") && all[1].contains("TRIREME_CUDA_SYNC"), "{all:?}");
        assert!(of(&[("TRIREME_NO_GRAPH", "1")]).notes()[0].contains("TRIREME_NO_GRAPH=1"));
    }
}
