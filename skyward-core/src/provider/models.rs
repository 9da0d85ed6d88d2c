//! Accelerator models, and whether they meet a request.

use crate::spec::Accelerator;

/// An accelerator, as its driver names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) memory_gib: Option<u32>,
}

impl Model {
    /// The plain name of its kind: `H100` for `NVIDIA H100 80GB HBM3`.
    pub(super) fn kind(&self) -> String {
        Accelerator::new(&*self.name, 1).plain_kind()
    }
}

/// How accelerators of unknown memory count where a request asks for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnsaidMemory {
    /// As enough: whoever declared them knows.
    Enough,
    /// As not enough: their driver would report it.
    TooLittle,
}

/// Whether accelerators meet a request: the same kind, at least as many, and at least as much
/// memory.
pub(super) fn serves(has: &Accelerator, wanted: &Accelerator, unsaid: UnsaidMemory) -> bool {
    let memory = match (wanted.least_memory_gib(), has.least_memory_gib()) {
        (None, _) => true,
        (Some(wanted), Some(has)) => has >= wanted,
        (Some(_), None) => unsaid == UnsaidMemory::Enough,
    };
    memory && has.count >= wanted.count && has.is_same_kind(wanted)
}

/// Parses the output of `nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits`.
pub(super) fn parse_smi(text: &str) -> Vec<Model> {
    text.lines()
        .filter_map(|line| line.rsplit_once(','))
        .map(|(name, mebibytes)| Model { name: name.trim().to_owned(), memory_gib: memory_of(name, mebibytes) })
        .collect()
}

/// The larger of the memory that a driver reports and the memory in the model's name: the driver
/// keeps some for itself, and a card of 80 GB shows 79.6 GiB, 81559 MiB or less.
fn memory_of(name: &str, mebibytes: &str) -> Option<u32> {
    let measured = (mebibytes.trim().parse::<f64>().ok()? / 1024.0).round() as u32;
    Some(measured.max(Accelerator::new(name, 1).least_memory_gib().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_their_common_names() {
        for (model, kind) in [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA A100-SXM4-80GB", "A100"),
            ("Tesla T4", "T4"),
            ("NVIDIA GeForce RTX 4090", "RTX4090"),
            ("NVIDIA RTX A6000", "RTXA6000"),
            ("NVIDIA X9 512GB HBM5", "X9"),
        ] {
            assert_eq!(Model { name: model.into(), memory_gib: None }.kind(), kind);
        }
    }

    #[test]
    fn kind_count_and_memory_must_suffice() {
        use UnsaidMemory::{Enough, TooLittle};

        let big = Accelerator::new("A100", 4).memory_gib(80);
        let unsaid = Accelerator::new("NVIDIA A100", 4);
        let named = Accelerator::new("A100-SXM4-40GB", 4);
        for (has, wanted, unknown, does) in [
            (&big, Accelerator::new("a100", 4), TooLittle, true),
            (&big, Accelerator::new("A100-SXM4-80GB", 1), TooLittle, true),
            (&big, Accelerator::new("A100", 5), TooLittle, false),
            (&big, Accelerator::new("A10", 1), TooLittle, false),
            (&big, Accelerator::new("A100", 1).memory_gib(96), Enough, false),
            (&unsaid, Accelerator::new("A100", 1), TooLittle, true),
            (&unsaid, Accelerator::new("A100-80GB", 1), Enough, true),
            (&unsaid, Accelerator::new("A100-80GB", 1), TooLittle, false),
            (&named, Accelerator::new("A100-40GB", 1), TooLittle, true),
            (&named, Accelerator::new("A100-80GB", 1), Enough, false),
        ] {
            assert_eq!(serves(has, &wanted, unknown), does, "{has} {wanted} {unknown:?}");
        }
    }

    #[test]
    fn the_output_of_nvidia_smi_is_parsed() {
        let models = parse_smi("NVIDIA H200, 143771\nNVIDIA H200, [N/A]\n");
        assert_eq!(models.iter().map(|model| model.memory_gib).collect::<Vec<_>>(), [Some(140), None]);
        assert_eq!(models[0].name, "NVIDIA H200");
    }
}
