use super::*;
use crate::plugin::{CustomPlugin, HookKind, plugin};
use indoc::indoc;

fn set(plugins: impl IntoIterator<Item = CustomPlugin>) -> PluginSet {
    let mut set = PluginSet::default();
    plugins.into_iter().for_each(|plugin| set.push(Arc::new(plugin)));
    set
}

fn list(names: &[&str]) -> String {
    let lines: Vec<_> = names.iter().map(|name| format!("    .plugin(plugin({name:?}))")).collect();
    format!("the corrected list:\n{}", lines.join("\n"))
}

fn two_nodes() -> ClusterInfo {
    ClusterInfo::new(2, 1)
}

/// Makes a plugin by name:
///
/// - `b` requires `a`.
/// - `c` requires `b` and `x`.
/// - `d` conflicts with `a`.
/// - `w` and `v` each join a world.
/// - Others have no relations.
fn make(name: &str) -> CustomPlugin {
    match name {
        "b" => plugin("b").requires("a", "of b"),
        "c" => plugin("c").requires("b", "of c").requires("x", "of x"),
        "d" => plugin("d").conflicts_with("a", "of d"),
        "w" | "v" => plugin(name).joins_world(),
        other => plugin(other),
    }
}

#[test]
fn every_rule_names_both_sides_and_shows_the_corrected_list() {
    let needs_a = |state: &str| format!("`b` needs `a` before it, because of b; `a` {state}");
    let cases: &[(&[&str], &[String], &[&str])] = &[
        (&["b"], &[needs_a("is not in the list")], &["a", "b"]),
        (&["b", "a"], &[needs_a("comes after it")], &["a", "b"]),
        (
            &["a", "z", "a"],
            &["`a` is listed twice (places 1, 3), and each worker would enter it twice".into()],
            &["a", "z"],
        ),
        (
            &["a", "a", "a"],
            &["`a` is listed 3 times (places 1, 2, 3), and each worker would enter it 3 times".into()],
            &["a"],
        ),
        (&["a", "d"], &["`d` cannot be used with `a`, because of d".into()], &["d"]),
        (&["d", "a", "b"], &["`d` cannot be used with `a`, because of d".into()], &["a", "b"]),
        (
            &["c", "z", "b", "a"],
            &[
                "`c` needs `b` before it, because of c; `b` comes after it".into(),
                "`c` needs `x` before it, because of x; `x` is not in the list".into(),
                needs_a("comes after it"),
            ],
            &["a", "b", "x", "c", "z"],
        ),
        (
            &["w", "v"],
            &["`v` cannot be used with `w`, because each joins all workers into one world, and a pool has one \
               rendezvous; a framework that you need only as a library goes into the image: `.pip([\"v\"])`"
                .into()],
            &["w"],
        ),
    ];
    for (names, problems, fixed) in cases {
        let error = set(names.iter().map(|name| make(name))).check(&two_nodes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Plugins);
        let message = match problems {
            [one] => one.clone(),
            many => format!("the plugins do not fit together:\n- {}", many.join("\n- ")),
        };
        assert_eq!(error.message(), message, "{names:?}");
        assert_eq!(error.hint(), Some(&*list(fixed)), "{names:?}");
    }
}

#[test]
fn valid_lists_are_accepted() {
    for names in [&[][..], &["a", "b"], &["x", "a", "b", "c"], &["d", "z"], &["z", "w"]] {
        set(names.iter().map(|name| make(name))).check(&two_nodes()).unwrap();
    }
    set([make("w"), make("v")]).check(&ClusterInfo::new(1, 1)).unwrap();
}

#[test]
fn a_world_on_an_elastic_pool_is_refused_even_while_it_has_one_worker() {
    let error = set([make("w")]).check(&ClusterInfo::new(1, 1).elastic(true)).unwrap_err();
    assert_eq!(
        error.message(),
        "`w` joins all workers into one world of fixed size, and the number of nodes of this pool may change"
    );
    assert_eq!(error.hint(), Some("give the pool a fixed number of nodes: `.nodes(1)`"));
}

#[test]
fn circular_or_contradictory_requirements_have_no_corrected_list() {
    let error = set([plugin("p").requires("q", "x"), plugin("q").requires("p", "y")]).check(&two_nodes()).unwrap_err();
    assert_eq!(error.hint(), None);
    let wants_both = plugin("u").requires("v", "x").requires("w", "y");
    assert_eq!(set([make("w"), make("v"), wants_both]).check(&two_nodes()).unwrap_err().hint(), None);
}

/// Checks every list of four out of six plugins, with repetition: each corrected list passes the
/// check itself.
///
/// Skips lists with `c` and without `b`: the corrected list adds `b`, and the requirements of a
/// plugin that is not in the list are unknown.
#[test]
fn the_corrected_list_is_correct() {
    let names = ["a", "b", "c", "d", "x", "w"];
    let mut corrected = 0;
    for code in 0..names.len().pow(4) {
        let chosen: Vec<_> = (0..4).map(|place| names[code / names.len().pow(place) % names.len()]).collect();
        if chosen.contains(&"c") && !chosen.contains(&"b") {
            continue;
        }
        let Err(error) = set(chosen.iter().map(|name| make(name))).check(&two_nodes()) else { continue };
        let Some(hint) = error.hint() else { continue };
        let fixed: Vec<_> = hint.split('"').skip(1).step_by(2).map(make).collect();
        assert!(!fixed.is_empty());
        set(fixed).check(&two_nodes()).unwrap_or_else(|error| panic!("{chosen:?}: {hint}\nstill: {error}"));
        corrected += 1;
    }
    assert!(corrected > 700, "{corrected}");
}

#[test]
fn bad_names_are_refused() {
    for name in ["", "Big", "two words", "1st"] {
        let error = set([plugin(name)]).check(&two_nodes()).unwrap_err();
        assert!(error.message().starts_with(&format!("the plugin name {name:?} is not one word")), "{error}");
    }
}

#[test]
fn the_error_of_a_hook_without_its_factory_names_the_plugin() {
    let error = set([plugin("p").around_task(indoc! {"
        def around(config):
            yield
    "})])
    .check(&two_nodes())
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Plugins);
    assert_eq!(error.context(), [("plugin", "p".to_owned())]);
}

#[test]
fn hooks_come_in_the_order_of_plugins_with_those_around_the_app_first() {
    let both = |name: &str| {
        plugin(name).around_app("def around_app(config): yield").around_task("def around_task(config): yield")
    };
    let hooks = set([both("p"), plugin("q"), both("r")]).hooks(&two_nodes());
    let order: Vec<_> = hooks.iter().map(|(name, hook)| (&**name, hook.kind)).collect();
    assert_eq!(order, [("p", HookKind::App), ("r", HookKind::App), ("p", HookKind::Task), ("r", HookKind::Task)]);
}

#[derive(Debug)]
struct Wrap(&'static str, Option<u32>);

impl Plugin for Wrap {
    fn name(&self) -> &str {
        self.0
    }

    fn workers_per_node(&self, accelerator: Option<&Accelerator>) -> Option<u32> {
        accelerator.and(self.1)
    }

    fn bootstrap(&self, _: &ClusterInfo) -> Vec<String> {
        vec![format!("echo {}", self.0)]
    }

    fn launcher(&self, command: Vec<String>, _: &ClusterInfo) -> Vec<String> {
        [vec![self.0.to_owned()], command].concat()
    }
}

#[test]
fn the_first_plugin_is_the_outermost_launcher_and_the_first_to_bootstrap() {
    let set = PluginSet(vec![Arc::new(Wrap("outer", None)), Arc::new(Wrap("inner", None))]);
    assert_eq!(set.launcher(vec!["python".into()], &two_nodes()), ["outer", "inner", "python"]);
    assert_eq!(set.bootstrap(&two_nodes()), ["echo outer", "echo inner"]);
}

#[test]
fn preferred_numbers_of_workers_must_agree() {
    let gpus = Accelerator::new("H100", 8);
    let set = |wishes: &[Option<u32>]| {
        PluginSet(wishes.iter().map(|wish| Arc::new(Wrap("w", *wish)) as Arc<dyn Plugin>).collect())
    };
    assert_eq!(set(&[]).workers_per_node(Some(&gpus)).unwrap(), None);
    assert_eq!(set(&[None, Some(8), Some(8)]).workers_per_node(Some(&gpus)).unwrap(), Some(8));
    assert_eq!(set(&[Some(8), Some(4)]).workers_per_node(None).unwrap(), None);
    let error = set(&[Some(8), None, Some(4)]).workers_per_node(Some(&gpus)).unwrap_err();
    assert_eq!(error.message(), "`w` asks for 8 workers on each node, and `w` for 4");
    assert_eq!(error.hint(), Some("choose one: `.workers_per_node(8)`"));
}
