//! The names of accelerators: what the driver calls them, and what the field does.

/// An accelerator, as its driver names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) memory_gib: Option<u32>,
}

/// Whether an accelerator of the host is the one that is asked for.
pub(super) fn is_kind(has: &str, wanted: &str) -> bool {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase();
    plain(has) == plain(wanted)
}

/// What `nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits` says.
pub(super) fn parse_smi(text: &str) -> Vec<Model> {
    text.lines()
        .filter_map(|line| line.rsplit_once(','))
        .map(|(name, mebibytes)| Model {
            name: name.trim().to_owned(),
            // The driver keeps some for itself: an 80 GB card shows 79.6 GiB or 81559 MiB.
            memory_gib: mebibytes.trim().parse::<f64>().ok().map(|mebibytes| (mebibytes / 1024.0).round() as u32),
        })
        .collect()
}

/// The field's name for a model: `H100` for `NVIDIA H100 80GB HBM3`.
pub(super) fn kind_of(model: &str) -> String {
    let mut words = model.split([' ', '-']).filter(|word| !MAKERS.contains(&word.to_ascii_uppercase().as_str()));
    match words.next() {
        Some(line @ ("RTX" | "GTX")) => format!("{line}{}", words.next().unwrap_or_default()),
        Some(word) => word.to_owned(),
        None => model.to_owned(),
    }
}

const MAKERS: [&str; 4] = ["NVIDIA", "TESLA", "GEFORCE", "QUADRO"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_fields_names() {
        for (model, kind) in [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA A100-SXM4-80GB", "A100"),
            ("Tesla T4", "T4"),
            ("NVIDIA GeForce RTX 4090", "RTX4090"),
            ("NVIDIA RTX A6000", "RTXA6000"),
        ] {
            assert_eq!(kind_of(model), kind);
        }
        assert!(is_kind("RTX4090", "rtx 4090"));
        assert!(!is_kind("A100", "A10"));
    }

    #[test]
    fn the_tool_is_read() {
        let models = parse_smi("NVIDIA H200, 143771\nNVIDIA H200, [N/A]\n");
        assert_eq!(models.iter().map(|model| model.memory_gib).collect::<Vec<_>>(), [Some(140), None]);
        assert_eq!(models[0].name, "NVIDIA H200");
    }
}
