//! Which table is a processor's.

use super::super::isa::Isa;

/// Who makes it, as CPUID says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Amd,
    Other,
}

/// Of this processor.
pub(super) fn vendor() -> Vendor {
    #[cfg(target_arch = "x86_64")]
    {
        // leaf 0: twelve letters in EBX, EDX, ECX
        let id = std::arch::x86_64::__cpuid(0);
        let letters = [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes);
        if letters.as_flattened() == b"AuthenticAMD" {
            return Vendor::Amd;
        }
    }
    Vendor::Other
}

/// The name of its table: by the registers that oneDNN uses, since what the environment holds back is not there; with AVX-512, by who
/// makes it: AMD's processors have it since Zen 4.
pub(super) fn table(isa: Isa, vendor: &Vendor) -> &'static str {
    match (isa, vendor) {
        (Isa::Sse41, _) => "none",
        (Isa::Avx2, _) => "avx2",
        (_, Vendor::Amd) => "zen4",
        (_, Vendor::Other) => "intel-avx512",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_then_the_vendor_name_the_table() {
        assert_eq!(table(Isa::Sse41, &Vendor::Amd), "none");
        for vendor in [Vendor::Amd, Vendor::Other] {
            assert_eq!(table(Isa::Avx2, &vendor), "avx2");
        }
        for isa in [Isa::Avx512, Isa::Avx512Bf16, Isa::Amx] {
            assert_eq!(table(isa, &Vendor::Amd), "zen4");
            assert_eq!(table(isa, &Vendor::Other), "intel-avx512");
        }
    }

    #[test]
    fn the_vendor_is_what_the_kernel_says() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        assert_eq!(vendor() == Vendor::Amd, info.contains("AuthenticAMD"));
    }
}
