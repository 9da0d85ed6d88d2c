//! Which modules of `skyward-core` may import which: those above them in the lists of
//! `ARCHITECTURE.md`.

mod imports;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail};

use self::imports::Imports;
use crate::context::Context;
use crate::sources;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "modules",
        about: "modules import those above them in ARCHITECTURE.md, and the files of a pool and of its scheduler do not import in circles",
        run: modules,
    }]
}

fn modules(context: &Context) -> Result<Outcome> {
    let page = fs::read_to_string(context.root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let imports = Imports::of(&sources::read(&context.root.join(CRATE))?);
    let mut checks = Checks::default();
    for (heading, within) in LISTS {
        let modules = imports.children(within);
        let order = order(&page, heading, &modules)?;
        for problem in upward(&imports, within, &order) {
            checks.fail(problem);
        }
    }
    for circle in WITHOUT_CIRCLES.into_iter().flat_map(|within| imports.circles(within)) {
        checks.fail(format!("these files import each other in a circle: {}", circle.join(", ")));
    }
    checks.outcome(format!("{} files", imports.files()))
}

/// The place of each module in the list below a heading. Each line begins with modules, and ends
/// with what they are for.
fn order<'m>(page: &str, heading: &str, modules: &'m [String]) -> Result<BTreeMap<&'m str, usize>> {
    let block = page.split_once(heading).and_then(|(_, rest)| rest.split("```").nth(1));
    let block = block.with_context(|| format!("{PAGE} has no list below `{heading}`"))?;
    let mut order = BTreeMap::new();
    for word in block.lines().skip(1).flat_map(|line| line.split("  ")).map(str::trim) {
        if let Some(module) = modules.iter().find(|module| *module == word) {
            let place = order.len();
            order.insert(module.as_str(), place);
        }
    }
    let missing: Vec<&str> = modules.iter().map(String::as_str).filter(|module| !order.contains_key(module)).collect();
    if !missing.is_empty() {
        bail!("the list below `{heading}` of {PAGE} lacks {}", missing.join(", "));
    }
    Ok(order)
}

/// The imports below `within` that lead to a module which comes later.
fn upward(imports: &Imports, within: &str, order: &BTreeMap<&str, usize>) -> Vec<String> {
    let place = |module: &str| {
        let rest = if within.is_empty() { module } else { module.strip_prefix(within)?.strip_prefix("::")? };
        let name = rest.split("::").next()?;
        order.get_key_value(name).map(|(name, place)| (*name, *place))
    };
    let mut problems = Vec::new();
    for (from, to) in imports.edges() {
        if let (Some((_, below)), Some((name, above))) = (place(from), place(to))
            && above > below
        {
            problems.push(format!("{from} imports {to}, and `{name}` comes after it in {PAGE}"));
        }
    }
    problems
}

const PAGE: &str = "ARCHITECTURE.md";
const CRATE: &str = "skyward-core/src/lib.rs";
/// The modules whose files form no circle.
const WITHOUT_CIRCLES: [&str; 2] = [POOL, "scheduler"];
const POOL: &str = "pool";
/// Headings of lists, and the module whose parts each has in order; the empty one is the crate.
const LISTS: [(&str, &str); 2] = [("## Inside `skyward-core`", ""), ("### Inside `pool`", POOL)];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sources::Source;

    const TEXT: &str = "# A\n## Inside `x`\n\n```text\nids  error    plain data\nspec          what is asked\n```\n";

    #[test]
    fn the_list_has_modules_in_their_order() {
        let modules = ["error", "ids", "spec"].map(str::to_owned);
        let order = order(TEXT, "## Inside `x`", &modules).unwrap();
        assert_eq!(order, BTreeMap::from([("ids", 0), ("error", 1), ("spec", 2)]));
    }

    #[test]
    fn a_module_that_is_not_listed_is_named() {
        let modules = ["error", "pool"].map(str::to_owned);
        let error = order(TEXT, "## Inside `x`", &modules).unwrap_err().to_string();
        assert!(error.ends_with("lacks pool"), "{error}");
    }

    #[test]
    fn an_import_of_a_later_module_is_a_problem() {
        let files = [
            ("ids", "pub struct Id;"),
            ("error", "use crate::ids::Id;"),
            ("spec", "pub mod part;"),
            ("spec::part", "use crate::error; fn f() { let _ = crate::pool::Pool; }"),
            ("pool", "pub use crate::spec::part;"),
        ];
        let sources = files.map(|(module, text)| Source::parse(module, Path::new("x.rs"), text).unwrap());
        let order = BTreeMap::from([("ids", 0), ("error", 1), ("spec", 2), ("pool", 3)]);
        let problems = upward(&Imports::of(&sources), "", &order);
        assert_eq!(problems, ["spec::part imports pool, and `pool` comes after it in ARCHITECTURE.md"]);
    }
}
