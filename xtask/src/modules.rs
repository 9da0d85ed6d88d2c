//! Which modules of `skyward-core`, and of its Python package, may import which: those above them in
//! the lists of `ARCHITECTURE.md`.

mod imports;
mod python;

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
        about: "modules import those above them in ARCHITECTURE.md; files of a pool, its scheduler and Python form no circle",
        run: modules,
    }]
}

fn modules(context: &Context) -> Result<Outcome> {
    let page = fs::read_to_string(context.root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let imports = Imports::of(&sources::read(&context.root.join(CRATE))?);
    let mut checks = Checks::default();
    for (heading, within) in LISTS {
        for problem in upward(&imports, within, &order(&page, heading, &imports.children(within))?) {
            checks.fail(problem);
        }
    }
    for problem in WITHOUT_CIRCLES.into_iter().flat_map(|within| circles(&imports, within)) {
        checks.fail(problem);
    }
    let python = python::imports(&context.root, &context.root.join(PYTHON))?;
    for problem in of_python(&python, &page)? {
        checks.fail(problem);
    }
    checks.outcome(format!("{} files", imports.files() + python.files()))
}

/// The problems of the Python package: its folders have an order, and no files form a circle.
fn of_python(imports: &Imports, page: &str) -> Result<Vec<String>> {
    let folders = imports.children("");
    let upward = upward(imports, "", &order(page, FOLDERS, &folders)?);
    Ok(upward.into_iter().chain(circles(imports, "")).map(|problem| problem.replace("::", ".")).collect())
}

/// The circles of files below a module, as problems.
fn circles(imports: &Imports, module: &str) -> Vec<String> {
    // The root of a package has no name of its own.
    let name = |file: &&str| if file.is_empty() { "the root".to_owned() } else { (*file).to_owned() };
    let circles = imports.circles(module).into_iter().map(|circle| circle.iter().map(name).collect::<Vec<_>>());
    circles.map(|circle| format!("these files import each other in a circle: {}", circle.join(", "))).collect()
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

/// The Python package, and the heading of the list of its folders.
const PYTHON: &str = "skyward-core/python/skyward";
const FOLDERS: &str = "### Inside `python/skyward`";

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

    #[test]
    fn folders_of_python_have_an_order_and_files_form_no_circle() {
        let page = "### Inside `python/skyward`\n\n```text\n_core   plain\n_calls  calls\nagent   its program\n```\n";
        let found = |files: &[(&str, &[&str])]| {
            let file =
                |(from, to): &(&str, &[&str])| ((*from).to_owned(), to.iter().map(|&it| it.to_owned()).collect());
            of_python(&files.iter().map(file).collect(), page).unwrap()
        };
        let mut files: Vec<(&str, &[&str])> = vec![
            ("", &["_calls::hub", "agent"]),
            ("_core::wire", &[]),
            ("_calls::hub", &["_core::wire"]),
            ("_calls::late", &["_calls::hub"]),
            ("agent", &["_core::wire"]),
        ];
        assert!(found(&files).is_empty());
        files[1].1 = &["agent"];
        let upward = "_core.wire imports agent, and `agent` comes after it in ARCHITECTURE.md";
        let circle = "these files import each other in a circle: _core.wire, agent";
        assert_eq!(found(&files), [upward, circle]);
        files[1].1 = &[];
        files[2].1 = &["_calls::late"];
        assert_eq!(found(&files), ["these files import each other in a circle: _calls.hub, _calls.late"]);
        files[2].1 = &[""];
        let root = "these files import each other in a circle: the root, _calls.hub";
        assert_eq!(found(&files), [root]);
    }
}
