use indoc::{formatdoc, indoc};

use super::super::bindings::Binding;
use super::super::module::{Lines, Module};
use super::*;
use crate::version::Target;

/// Files in one folder, by their names without `.py`.
struct Folder(Vec<Module>);

impl Modules for Folder {
    fn statements(&self, file: usize) -> &[Stmt] {
        self.0[file].statements()
    }

    fn imported(&self, _: usize, _: u32, module: &str) -> Option<usize> {
        self.0.iter().position(|file| file.path == module)
    }
}

/// The world of `f` in the first file.
fn world_in(files: &[(&str, &str)]) -> Option<&'static str> {
    let parse = |(name, text): &(&str, &str)| Module::parse(*name, *text, Lines::Own, Target::oldest());
    let folder = Folder(files.iter().map(parse).collect());
    assert!(folder.0.iter().all(Module::is_valid), "{files:?}");
    match folder.0[0].bindings().find("f") {
        Some(Binding::Function(function)) => joins(&folder, 0, function),
        _ => panic!("no f in {files:?}"),
    }
}

fn world(text: &str) -> Option<&'static str> {
    world_in(&[("main", text)])
}

fn decorated(before: &str, decorator: &str) -> Option<&'static str> {
    world(&formatdoc! {"
        {before}
        @{decorator}
        def f(): pass
    "})
}

#[test]
fn decorators_are_found_under_any_name() {
    for (import, decorator, expected) in [
        ("import skyward as sky", "sky.integrations.torch", Some("torch")),
        ("import skyward as sky", "sky.integrations.torch(backend='gloo')", Some("torch")),
        ("import skyward", "skyward.integrations.jax()", Some("jax")),
        ("import skyward.integrations", "skyward.integrations.jax", Some("jax")),
        ("import skyward.integrations as it", "it.transformers()", Some("torch")),
        ("from skyward import integrations", "integrations.keras", Some("jax")),
        ("from skyward.integrations import keras as k", "k(backend='torch', seed=1)", Some("torch")),
        (
            indoc! {"
                try:
                    from skyward.integrations import keras
                except ImportError:
                    pass"},
            "keras(seed=1)",
            Some("jax"),
        ),
        ("from skyward.integrations import keras", "keras(backend='tensorflow')", None),
        ("from skyward import *", "integrations.torch", Some("torch")),
        ("from skyward.integrations import *", "jax()", Some("jax")),
        (
            indoc! {"
                from skyward.integrations import *
                from math import *"},
            "jax()",
            Some("jax"),
        ),
        ("import skyward as sky", "sky.compute", None),
        ("import jax", "jax.jit", None),
        ("from other import integrations", "integrations.torch", None),
        ("from other import *", "integrations.torch", None),
    ] {
        assert_eq!(decorated(import, decorator), expected, "{import}: {decorator}");
    }
    let stacked = indoc! {"
        import skyward as sky
        @sky.compute
        @sky.stdout(only='head')
        @sky.integrations.jax()
        def f(): pass
    "};
    assert_eq!(world(stacked), Some("jax"));
}

#[test]
fn a_backend_that_is_not_written_down_is_not_known() {
    for (arguments, expected) in [
        ("backend=BACKEND", "unknown"),
        ("backend=os.environ['B'], seed=1", "unknown"),
        ("backend='to' + 'rch'", "unknown"),
        ("**options", "unknown"),
        ("backend='torch', **options", "torch"),
        ("seed=1", "jax"),
    ] {
        let found = decorated("from skyward.integrations import keras", &format!("keras({arguments})"));
        assert_eq!(found, Some(expected), "{arguments}");
    }
}

#[test]
fn assignments_are_followed() {
    for (before, decorator, expected) in [
        (
            indoc! {"
                import skyward as sky
                world = sky.integrations.torch(backend='gloo')"},
            "world",
            Some("torch"),
        ),
        (
            indoc! {"
                import skyward as sky
                world: object = sky.integrations.jax"},
            "world()",
            Some("jax"),
        ),
        (
            indoc! {"
                import skyward as sky
                integrations = sky.integrations"},
            "integrations.keras(backend='torch')",
            Some("torch"),
        ),
        (
            indoc! {"
                import skyward as sky
                a = b = sky.integrations
                c = b.jax"},
            "c",
            Some("jax"),
        ),
        (
            indoc! {"
                import skyward as sky
                x, y = 1, sky.integrations.jax()"},
            "y",
            Some("jax"),
        ),
        (
            indoc! {"
                import skyward as sky
                if FAST:
                    world = sky.integrations.jax()"},
            "world",
            Some("jax"),
        ),
        (
            indoc! {"
                import skyward as sky
                with x as y:
                    world = sky.integrations.jax()"},
            "world",
            Some("jax"),
        ),
        // What the decorator is given to has a world; what is called once more is another thing.
        (
            indoc! {"
                import skyward as sky
                world = sky.integrations.jax()"},
            "world(1)",
            None,
        ),
        (
            indoc! {"
                import skyward as sky
                world = choose(sky.integrations.jax)"},
            "world",
            None,
        ),
        (
            indoc! {"
                import skyward as sky
                world = sky.integrations.keras(backend='tensorflow')"},
            "world",
            None,
        ),
    ] {
        assert_eq!(decorated(before, decorator), expected, "{before}: {decorator}");
    }
}

#[test]
fn names_that_stand_for_something_else_by_then_do_not_count() {
    let import = "from skyward.integrations import torch\n";
    for after in [
        "from other import torch",
        "import torch",
        "torch = 1",
        "def torch(f): return f",
        "class torch: pass",
        "del torch",
        "for torch in (): pass",
        "with x as (torch, y): pass",
        "torch += 1",
        indoc! {"
            if True:
                import torch"},
    ] {
        assert_eq!(decorated(&format!("{import}{after}"), "torch"), None, "{after}");
    }
    // It is bound after the decorator has been read.
    let later = formatdoc! {"
        {import}@torch
        def f(): pass
        import torch
    "};
    assert_eq!(world(&later), Some("torch"));
}

#[test]
fn what_a_worker_does_not_run_does_not_count() {
    for never in ["if TYPE_CHECKING:", "if typing.TYPE_CHECKING:", "if __name__ == '__main__':", "if False:"] {
        let alone = formatdoc! {"
            {never}
                from skyward.integrations import torch"};
        assert_eq!(decorated(&alone, "torch"), None, "{never}");
        let both = formatdoc! {"
            from skyward.integrations import torch
            {never}
                from other import torch"};
        assert_eq!(decorated(&both, "torch"), Some("torch"), "{never}");
    }
    // What may take its place may not.
    for otherwise in [
        indoc! {"
            try:
                from skyward.integrations import torch
            except ImportError:
                torch = None"},
        indoc! {"
            if x:
                from skyward.integrations import torch
            else:
                def torch(f): return f"},
    ] {
        assert_eq!(decorated(otherwise, "torch"), Some("torch"), "{otherwise}");
    }
}

#[test]
fn names_are_followed_through_the_files_of_the_payload() {
    let worlds = (
        "worlds",
        indoc! {"
            import skyward as sky
            world = sky.integrations.torch()
            keras = sky.integrations.keras
        "},
    );
    for (import, decorator, expected) in [
        ("from .worlds import world", "world", Some("torch")),
        ("from worlds import world as w", "w", Some("torch")),
        ("from . import worlds", "worlds.world", Some("torch")),
        ("import worlds", "worlds.keras(backend=B)", Some("unknown")),
        ("from .worlds import sky", "sky.integrations.jax", Some("jax")),
        ("from .worlds import *", "keras", Some("jax")),
        ("from .worlds import *", "sky.integrations.jax()", Some("jax")),
        ("from .again import world", "world", Some("torch")),
        ("from .circle import world", "world", None),
        (
            indoc! {"
                from .worlds import keras
                world = keras(backend='torch')"},
            "world",
            Some("torch"),
        ),
        ("from .worlds import world", "world()", None),
        ("from .worlds import other", "other", None),
        ("from .missing import world", "world", None),
    ] {
        let main = formatdoc! {"
            {import}
            @{decorator}
            def f(): pass
        "};
        let again = ("again", "from .worlds import world\n");
        let circle = ("circle", "from .circle import world\n");
        assert_eq!(world_in(&[("main", &main), worlds, again, circle]), expected, "{import}: {decorator}");
    }
}
