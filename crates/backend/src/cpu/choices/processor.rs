//! Which table is a processor's.

use super::super::isa::Isa;

/// Whose processor it is, as CPUID says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// With the processor's family: 25 are Zen 3 and 4, 26 Zen 5.
    Amd {
        family: u32,
    },
    Other,
}

/// Of this processor.
pub(super) fn maker() -> Maker {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        // leaf 0: twelve letters in EBX, EDX, ECX
        let id = __cpuid(0);
        let letters = [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes);
        if letters.as_flattened() == b"AuthenticAMD" {
            // leaf 1: the family, which beyond 15 is a sum of two fields
            let version = __cpuid(1).eax;
            let (family, more) = (version >> 8 & 0xf, version >> 20 & 0xff);
            return Maker::Amd { family: if family == 0xf { family + more } else { family } };
        }
    }
    Maker::Other
}

/// The name of its table: by the registers that oneDNN uses, since what the environment holds back is not there; with AVX-512, by who
/// makes it: AMD's processors have it since Zen 4, and as wide as registers since Zen 5.
pub(super) fn table(isa: Isa, maker: &Maker) -> &'static str {
    match (isa, maker) {
        (Isa::Sse41, _) => "none",
        (Isa::Avx2, _) => "avx2",
        (_, Maker::Amd { family: ..26 }) => "zen4",
        (_, Maker::Amd { .. }) => "zen5",
        (_, Maker::Other) => "intel-avx512",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_then_maker_and_family_name_the_table() {
        let [zen4, zen5, later] = [25, 26, 27].map(|family| Maker::Amd { family });
        assert_eq!(table(Isa::Sse41, &zen4), "none");
        for maker in [&zen4, &zen5, &Maker::Other] {
            assert_eq!(table(Isa::Avx2, maker), "avx2");
        }
        for isa in [Isa::Avx512, Isa::Avx512Bf16, Isa::Amx] {
            assert_eq!([&zen4, &zen5, &later].map(|maker| table(isa, maker)), ["zen4", "zen5", "zen5"]);
            assert_eq!(table(isa, &Maker::Other), "intel-avx512");
        }
    }

    #[test]
    fn the_maker_is_who_the_kernel_says() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let family = || {
            let line = info.lines().find(|line| line.starts_with("cpu family")).unwrap();
            line.split(':').nth(1).unwrap().trim().parse().unwrap()
        };
        let want = if info.contains("AuthenticAMD") { Maker::Amd { family: family() } } else { Maker::Other };
        assert_eq!(maker(), want);
    }
}
