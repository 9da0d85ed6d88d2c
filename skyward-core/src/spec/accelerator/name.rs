//! Parses the name of an accelerator.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::AcceleratorFamily;
use super::kinds::{FORMS, KINDS, Kind, MAKERS};

/// A parsed name.
#[derive(Debug)]
pub(super) struct Name {
    kind: Option<&'static Kind>,
    /// The words of an unknown kind, joined, in their original case.
    rest: String,
    /// The family that the maker's words name, if the kind is unknown and the words agree.
    maker: Option<AcceleratorFamily>,
    memory_gib: Option<u32>,
}

impl Name {
    pub(super) fn read(text: &str) -> Self {
        let words = words(text);
        let (mut rest, mut makers, mut memory_gib) = (Vec::new(), Vec::new(), None);
        let mut at = 0;
        while let Some(&word) = words.get(at) {
            at += 1;
            let lower = word.to_lowercase();
            if let Some((_, family)) = MAKERS.iter().find(|(maker, _)| *maker == lower) {
                makers.extend(*family);
            } else if let Some(size) = size(&lower) {
                memory_gib = Some(size);
            } else if let Some(size) = words.get(at).and_then(|unit| size_in(&lower, unit)) {
                memory_gib = Some(size);
                at += 1;
            } else if !is_form(&lower) {
                rest.push(word);
            }
        }
        if rest.is_empty() {
            rest.clone_from(&words);
        }
        let agree = |family: AcceleratorFamily| makers.iter().all(|maker| *maker == family);
        match known(&rest) {
            Some(kind) if agree(kind.family) => Self {
                kind: Some(kind),
                rest: String::new(),
                maker: None,
                memory_gib: memory_gib.filter(|_| kind.is_sized),
            },
            // The maker's words and the kind contradict each other.
            Some(_) => Self { kind: None, rest: join(&words), maker: None, memory_gib },
            None if rest.is_empty() => Self { kind: None, rest: text.to_owned(), maker: None, memory_gib },
            None => {
                let maker = makers.first().copied().filter(|family| agree(*family));
                Self { kind: None, rest: join(&rest), maker, memory_gib }
            }
        }
    }

    pub(super) fn family(&self) -> Option<AcceleratorFamily> {
        self.kind.map(|kind| kind.family).or(self.maker)
    }

    pub(super) fn is_same_kind(&self, other: &Self) -> bool {
        match (self.kind, other.kind) {
            (Some(kind), Some(other)) => kind.name == other.name,
            (None, None) => self.rest.to_lowercase() == other.rest.to_lowercase(),
            _ => false,
        }
    }

    pub(super) fn plain(self) -> String {
        self.kind.map_or(self.rest, |kind| kind.name.to_owned())
    }

    pub(super) fn memory_gib(&self) -> Option<u32> {
        self.memory_gib
    }
}

/// Joins the words, so that separators do not matter: `RTX 4090` is `RTX4090`. A separator stays
/// between two digits, because it separates two numbers: `v5-20` is not `v520`.
pub(super) fn join(words: &[&str]) -> String {
    let mut joined = String::new();
    for word in words {
        let divides = |c: char| c.is_ascii_digit();
        if joined.ends_with(divides) && word.starts_with(divides) {
            joined.push('-');
        }
        joined.push_str(word);
    }
    joined
}

pub(super) fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect()
}

/// The known kind that these words name. For a TPU, the number of chips or cores of a slice may
/// follow.
fn known(words: &[&str]) -> Option<&'static Kind> {
    let find = |words: &[&str]| PLAIN.get(&join(words).to_lowercase()).copied();
    find(words).or_else(|| {
        let (chips, words) = words.split_last()?;
        let is_slice = chips.chars().all(|c| c.is_ascii_digit());
        find(words).filter(|kind| is_slice && kind.family == AcceleratorFamily::Tpu)
    })
}

/// A size of memory: `80GB`, `80GiB`, `144G`.
fn size(word: &str) -> Option<u32> {
    let number = ["gib", "gb", "g"].iter().find_map(|unit| word.strip_suffix(unit))?;
    number.chars().all(|c| c.is_ascii_digit()).then(|| number.parse().ok())?
}

/// A size of memory whose unit is a separate word: `80 GB`.
fn size_in(number: &str, unit: &str) -> Option<u32> {
    ["gb", "gib"].contains(&&*unit.to_lowercase()).then(|| number.parse().ok())?
}

/// Whether a word names a form factor, a type of memory or a licence.
fn is_form(word: &str) -> bool {
    let is_generation = |rest: &str| rest.strip_suffix('e').unwrap_or(rest).chars().all(|c| c.is_ascii_digit());
    FORMS.iter().filter_map(|form| word.strip_prefix(form)).any(is_generation)
}

/// The known kinds by all of their names, joined, in lower case.
static PLAIN: LazyLock<HashMap<String, &'static Kind>> = LazyLock::new(|| {
    let spelled = |kind: &'static Kind| kind.spellings.iter().chain([&kind.name]).map(move |name| (name, kind));
    KINDS.iter().flat_map(spelled).map(|(name, kind)| (join(&words(name)).to_lowercase(), kind)).collect()
});
