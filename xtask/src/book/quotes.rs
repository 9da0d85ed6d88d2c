//! What pages quote: code that is in a file, and what a program prints.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::markdown;
use crate::step::Checks;

/// Checks the blocks of a page that are quoted from files.
pub(crate) fn check(root: &Path, page: &str, text: &str, checks: &mut Checks) -> Result<()> {
    for quote in markdown::quotes(text) {
        let line = quote.line;
        if let Some(file) = quote.source.strip_prefix(FROM) {
            let whole = fs::read_to_string(root.join(file)).with_context(|| format!("{page} quotes {file}"))?;
            if !whole.contains(quote.text.trim_end()) {
                checks.fail(format!("{page}:{line} is not what stands in {file}"));
            }
        } else if let Some(program) = quote.source.strip_prefix(PRINTED) {
            if page != TUTORIAL || !root.join(format!("examples/{program}.rs")).exists() {
                checks
                    .fail(format!("{page}:{line}: only what examples print in {TUTORIAL} is compared, not {program}"));
            }
        } else if !quote.source.starts_with(RECORDED) {
            bail!(
                "{page}:{line} is quoted {:?}; there are: {FROM}FILE, {PRINTED}EXAMPLE, {RECORDED}COMMAND",
                quote.source
            );
        }
    }
    Ok(())
}

/// Checks that a program has printed what the tutorial says of it, if it says anything.
pub(crate) fn check_printed(root: &Path, program: &str, output: &str) -> Result<()> {
    let text = fs::read_to_string(root.join(TUTORIAL)).with_context(|| format!("cannot read {TUTORIAL}"))?;
    for quote in markdown::quotes(&text) {
        if quote.source.strip_prefix(PRINTED) == Some(program) {
            ensure!(is_printed(&quote.text, output), "{TUTORIAL}:{} is not what {program} prints", quote.line);
        }
    }
    Ok(())
}

/// Whether a program has printed these lines in this order, whatever was between them. Numbers with
/// a fraction may differ by a tenth: they depend on the processor.
fn is_printed(lines: &str, output: &str) -> bool {
    let mut output = output.lines();
    lines.lines().all(|line| output.any(|printed| is_like(line, printed)))
}

fn is_like(line: &str, printed: &str) -> bool {
    let (line, printed): (Vec<&str>, Vec<&str>) = (line.split(' ').collect(), printed.split(' ').collect());
    line.len() == printed.len() && line.iter().zip(printed).all(|(word, printed)| is_near(word, printed))
}

fn is_near(word: &str, printed: &str) -> bool {
    let number = |word: &str| word.trim_end_matches(',').parse::<f64>().ok().filter(|_| word.contains('.'));
    match (number(word), number(printed)) {
        (Some(a), Some(b)) => (a - b).abs() <= NEAR,
        _ => word == printed,
    }
}

/// The block is in this file.
const FROM: &str = "from ";
/// A step runs this example and compares what it prints.
const PRINTED: &str = "printed by ";
/// It was printed once, and is other each time.
const RECORDED: &str = "recorded with ";
const TUTORIAL: &str = "docs/tutorial.md";
const NEAR: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_compared_in_their_order_and_fractions_nearly() {
        let output = "a warning\nnode 0: loss 0.52, accuracy 0.95\nnoise\ntogether: 3\n";
        assert!(is_printed("node 0: loss 0.50, accuracy 0.96\ntogether: 3\n", output));
        assert!(!is_printed("node 0: loss 0.90, accuracy 0.96\n", output));
        assert!(!is_printed("together: 4\n", output));
        assert!(!is_printed("together: 3\nnode 0: loss 0.52, accuracy 0.95\n", output));
    }

    #[test]
    fn a_block_that_nothing_backs_is_reported() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let holds = |page: &str, source: &str, text: &str| {
            let mut checks = Checks::default();
            let text = format!("<!-- {source} -->\n```text\n{text}\n```\n");
            check(root, page, &text, &mut checks)?;
            checks.outcome("").map(drop)
        };
        assert!(holds("page", "from xtask/Cargo.toml", "name = \"xtask\"").is_ok());
        assert!(holds("page", "from xtask/Cargo.toml", "name = \"ytask\"").is_err());
        assert!(holds("page", "from no/such/file", "").is_err());
        assert!(holds(TUTORIAL, "printed by hello", "").is_ok());
        assert!(holds(TUTORIAL, "printed by nothing", "").is_err());
        assert!(holds("page", "printed by hello", "").is_err());
        assert!(holds("page", "recorded with true", "").is_ok());
        assert!(holds("page", "heard of", "").is_err());
    }
}
