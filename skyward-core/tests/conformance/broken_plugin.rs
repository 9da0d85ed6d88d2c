//! Plugins that break one clause each.

use std::sync::atomic::{AtomicUsize, Ordering};

use indoc::indoc;
use skyward_core::error::Result;
use skyward_core::plugin::{Hook, HookKind, Plugin, Relation};
use skyward_core::spec::{Accelerator, ClusterInfo, Image};
use skyward_core::testkit::plugin_suite as suite;

/// How a plugin is broken.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    UpperCase,
    Counts,
    NoWorkers,
    NeedsItself,
    NeedsAndRefuses,
    Replaces,
    Reorders,
    Overrides,
    BadRequirement,
    OtherKind,
    NoFactory,
    NoPython,
    Drops,
    NoShell,
}

/// A plugin with one fault.
#[derive(Debug)]
struct Broken(Fault, AtomicUsize);

impl Broken {
    fn is(&self, fault: Fault) -> bool {
        self.0 == fault
    }
}

impl Plugin for Broken {
    fn name(&self) -> &str {
        if self.is(Fault::UpperCase) { "Broken Plugin" } else { "broken" }
    }

    fn workers_per_node(&self, _: Option<&Accelerator>) -> Option<u32> {
        self.is(Fault::NoWorkers).then_some(0)
    }

    fn requires(&self, _: &ClusterInfo) -> Vec<Relation> {
        match self.0 {
            Fault::NeedsItself => vec![Relation::new("broken", "it does")],
            Fault::NeedsAndRefuses => vec![Relation::new("jax", "it does")],
            _ => Vec::new(),
        }
    }

    fn conflicts_with(&self, _: &ClusterInfo) -> Vec<Relation> {
        self.is(Fault::NeedsAndRefuses).then(|| Relation::new("jax", "it does")).into_iter().collect()
    }

    fn transform(&self, mut image: Image, _: &ClusterInfo) -> Result<Image> {
        match self.0 {
            Fault::Counts => image = image.env("CALLS", self.1.fetch_add(1, Ordering::Relaxed).to_string()),
            Fault::Replaces => image.pip = vec!["mine".into()],
            Fault::Reorders => image.pip.reverse(),
            Fault::Overrides => image = image.env("OMP_NUM_THREADS", "1"),
            Fault::BadRequirement => image = image.pip(["==1"]),
            _ => {}
        }
        Ok(image)
    }

    fn bootstrap(&self, _: &ClusterInfo) -> Vec<String> {
        self.is(Fault::NoShell).then(|| "if true; then".to_owned()).into_iter().collect()
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<Hook> {
        let kind = if self.is(Fault::OtherKind) { HookKind::Task } else { HookKind::App };
        let source = match self.0 {
            Fault::NoFactory => indoc! {"
                def other(config):
                    yield
            "},
            Fault::NoPython => indoc! {"
                def around_app(config):
                  yield +
            "},
            _ => indoc! {"
                def around_app(config):
                    yield
            "},
        };
        Some(Hook::new(kind, "broken.py", source, "around_app"))
    }

    fn launcher(&self, command: Vec<String>, _: &ClusterInfo) -> Vec<String> {
        if self.is(Fault::Drops) { vec!["numactl".into(), command[0].clone()] } else { command }
    }
}

macro_rules! finds {
    ($($fault:ident => $clause:ident),+ $(,)?) => {
        $(
            let violation = suite::$clause(&Broken(Fault::$fault, AtomicUsize::new(0))).expect_err(stringify!($fault));
            assert_eq!(violation.clause, stringify!($clause), "{violation}");
        )+
    };
}

#[test]
fn each_clause_finds_its_fault() {
    finds! {
        UpperCase => name_is_one_word,
        Counts => answers_are_pure,
        NoWorkers => workers_per_node_is_not_zero,
        NeedsItself => relations_are_to_others,
        NeedsAndRefuses => relations_are_to_others,
        Replaces => transform_only_adds,
        Reorders => transform_only_adds,
        Overrides => transform_only_adds,
        BadRequirement => transform_gives_a_valid_image,
        OtherKind => hooks_are_of_their_kind,
        NoFactory => hooks_define_their_factory,
        NoPython => hooks_are_python,
        Drops => launcher_keeps_the_command,
        NoShell => bootstrap_is_shell,
    }
}

#[test]
fn all_reports_only_the_broken_clause() {
    suite::all(&Broken(Fault::None, AtomicUsize::new(0))).unwrap();
    let violations = suite::all(&Broken(Fault::NoPython, AtomicUsize::new(0))).unwrap_err();
    assert_eq!(violations.iter().map(|violation| violation.clause).collect::<Vec<_>>(), ["hooks_are_python"]);
}
