use indoc::indoc;

use super::super::module::{Lines, Module};
use super::super::version::Target;

fn messages(text: &str) -> Vec<String> {
    let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
    assert!(module.is_valid(), "{text}");
    module.unknown_names().iter().map(ToString::to_string).collect()
}

fn message(text: &str) -> String {
    let mut found = messages(text);
    assert_eq!(found.len(), 1, "{text}: {found:#?}");
    found.remove(0)
}

#[test]
fn names_that_are_not_there_are_found_where_they_stand() {
    for (text, expected) in [
        (
            indoc! {"
                import skyward as sky

                x = sky.shrad(1)
            "},
            indoc! {"
                a.py:3:9: `skyward` has no `shrad`; did you mean `shard`?
                3 | x = sky.shrad(1)
                  |         ^^^^^"},
        ),
        (
            indoc! {"
                import skyward
                @skyward.computte
                def f(): pass
            "},
            indoc! {"
                a.py:2:10: `skyward` has no `computte`; did you mean `compute`?
                2 | @skyward.computte
                  |          ^^^^^^^^"},
        ),
        (
            "from skyward import shard, shrad as s\n",
            indoc! {"
                a.py:1:28: `skyward` has no `shrad`; did you mean `shard`?
                1 | from skyward import shard, shrad as s
                  |                            ^^^^^"},
        ),
    ] {
        assert_eq!(message(text), expected);
    }
}

#[test]
fn names_that_are_not_there_are_found_under_any_name_of_the_module() {
    for (text, expected) in [
        (
            indoc! {"
                def f():
                    import skyward as s
                    return s.is_haed
            "},
            "`skyward` has no `is_haed`; did you mean `is_head`?",
        ),
        (
            indoc! {"
                import skyward as sky
                sky.integrations.toch
            "},
            "`skyward.integrations` has no `toch`; did you mean `torch`?",
        ),
        (
            indoc! {"
                from skyward import integrations as i
                @i.kears()
                def f(): pass
            "},
            "no `kears`; did you mean `keras`?",
        ),
        ("from skyward.integrations import jaxx\n", "`skyward.integrations` has no `jaxx`; did you mean `jax`?"),
        ("import skyward.integration\n", "`skyward` has no `integration`; did you mean `integrations`?"),
        ("from skyward.integration import jax\n", "`skyward` has no `integration`;"),
        (
            indoc! {"
                import skyward.integrations as si
                si.torhc
            "},
            "did you mean `torch`?",
        ),
        (
            indoc! {"
                import skyward as sky
                sky.integrations.lightning
            "},
            "it has `BackendError`, `JoblibPool`, `ScikitLearnPool`, `jax`, `joblib_backend`, `keras`, `keras_checkpoint`, `sklearn_backend`, `torch`, `trainer_checkpoint` and `transformers`",
        ),
        (
            indoc! {"
                import skyward as sky
                x: sky.InstanceInof
            "},
            "did you mean `InstanceInfo`?",
        ),
        (
            indoc! {"
                import skyward as sky
                import skyward as sky
                sky.shrad
            "},
            "did you mean `shard`?",
        ),
        (
            indoc! {"
                import skyward as sky
                try:
                    sky.shrad
                except ValueError:
                    pass
            "},
            "did you mean `shard`?",
        ),
    ] {
        assert!(message(text).contains(expected), "{}", message(text));
    }
}

#[test]
fn each_name_that_is_not_there_is_told() {
    let text = indoc! {"
        import skyward as sky
        sky.shrad
        sky.comput
    "};
    assert_eq!(messages(text).len(), 2);
}

#[test]
fn keywords_that_are_not_taken_are_found() {
    for (text, expected) in [
        (
            indoc! {"
                import skyward as sky
                @sky.integrations.torch(backnd='gloo')
                def f(): pass
            "},
            "a.py:2:25: `skyward.integrations.torch` takes no `backnd`; did you mean `backend`?",
        ),
        (
            indoc! {"
                import skyward as sky
                sky.shard([1], shufle=True)
            "},
            "`skyward.shard` takes no `shufle`; did you mean `shuffle`?",
        ),
        (
            indoc! {"
                from skyward import stdout
                @stdout(onyl='head')
                def f(): pass
            "},
            "`stdout` takes no `onyl`; did you mean `only`?",
        ),
        (
            indoc! {"
                import skyward as sky
                sky.shard([1], workers=2)
            "},
            "it takes `shuffle`, `seed` and `drop_last`",
        ),
        (
            indoc! {"
                import skyward as sky
                @sky.silent(only='head')
                def f(): pass
            "},
            "`skyward.silent` takes no `only`; it takes no keywords",
        ),
    ] {
        assert!(message(text).contains(expected), "{}", message(text));
    }
}

#[test]
fn what_is_there_or_not_plain_is_left_alone() {
    for text in [
        indoc! {"
            import skyward as sky
            @sky.function
            @sky.compute(anything=1)
            @sky.function()
            @sky.stdout(only='head')
            def f(): sky.shard([1], seed=2)
        "},
        indoc! {"
            import skyward as sky
            sky.instance_info().nowhere.shrad
            sky.is_head()
            sky.__version__
            sky._core
        "},
        indoc! {"
            import skyward.worker
            from skyward._core.state import gang
            from skyward import *
            skyward.worker.main
        "},
        indoc! {"
            import skyward as sky
            sky = other()
            sky.shrad
        "},
        indoc! {"
            import skyward as sky
            def f(sky): return sky.shrad
        "},
        indoc! {"
            import skyward as sky
            [sky.shrad for sky in x]
        "},
        indoc! {"
            import skyward as sky
            with x as sky: sky.shrad
        "},
        indoc! {"
            import skyward as sky
            match x:
                case [sky]: sky.shrad
        "},
        indoc! {"
            import skyward as sky
            import clouds as sky
            sky.shrad
        "},
        indoc! {"
            from .local import sky
            sky.shrad
        "},
        indoc! {"
            from clouds import skyward
            skyward.shrad
        "},
        indoc! {"
            import skyward as sky
            sky.shrad = 1
            sky.shrad
        "},
        indoc! {"
            import skyward as sky
            setattr(sky, 'shrad', 1)
            sky.shrad
        "},
        indoc! {"
            import skyward as sky
            setattr(sky, name, 1)
            sky.shrad
        "},
        indoc! {"
            import skyward as sky
            getattr(sky, 'shrad', None)
        "},
        indoc! {"
            import skyward as sky
            if hasattr(sky, 'shrad'): sky.shrad
        "},
        indoc! {"
            import skyward as sky
            try:
                sky.shrad
            except AttributeError:
                pass
        "},
        indoc! {"
            try:
                from skyward import shrad
            except (ValueError, ImportError):
                shrad = None
        "},
        indoc! {"
            import skyward as sky
            with contextlib.suppress(AttributeError):
                sky.shrad
        "},
        indoc! {"
            import skyward as sky
            sky.shard(x, **options)
        "},
    ] {
        assert_eq!(messages(text), [""; 0], "{text}");
    }
}

#[test]
fn what_no_worker_runs_is_left_alone() {
    for text in [
        "if __name__ == '__main__':\n    with sky.Compute(provider=sky.AWS()) as compute: pass\n",
        "if TYPE_CHECKING:\n    from skyward import Pool\n    p: sky.Pool\n",
        "if not (__name__ != '__main__' or x):\n    sky.Compute()\n",
        "if __name__ != '__main__':\n    pass\nelse:\n    sky.Compute()\n",
        "if not typing.TYPE_CHECKING:\n    pass\nelif x:\n    sky.Compute()\nelse:\n    sky.AWS\n",
        "if x and False:\n    def f(): return sky.Compute()\n",
        "def f():\n    if __name__ != '__main__':\n        return 1\n    sky.Compute()\n",
        "def f():\n    return 1\n    sky.Compute()\n",
        "while False:\n    sky.Compute()\n",
        "c = sky.Compute() if __name__ == '__main__' else None\n",
        "c = None if not TYPE_CHECKING else sky.Compute()\n",
        "__name__ == '__main__' and sky.Compute()\n",
        "__name__ != '__main__' or sky.Compute()\n",
        "from __future__ import annotations\ndef f(c: sky.Compute) -> sky.Result:\n    x: sky.Pool = c\n    return x\n",
    ] {
        let text = format!("import skyward as sky\n{text}");
        assert_eq!(messages(&text), [""; 0], "{text}");
    }
}

#[test]
fn what_no_worker_runs_hides_nothing_of_what_one_runs() {
    for text in [
        "if __name__ == '__main__':\n    sky.Compute()\nelse:\n    sky.shrad\n",
        "if not TYPE_CHECKING:\n    sky.shrad\n",
        "if x or __name__ == '__main__':\n    sky.shrad\n",
        "if TYPE_CHECKING:\n    import clouds as sky\nsky.shrad\n",
        "if __name__ == '__main__':\n    sky.shrad = 1\n    setattr(sky, name, 1)\nsky.shrad\n",
        "def f():\n    if x:\n        return 1\n    sky.shrad\n",
        "while x:\n    if y: break\n    sky.shrad\n",
        "sky.shrad and __name__ == '__main__'\n",
        "c = None if __name__ == '__main__' else sky.shrad\n",
    ] {
        assert!(message(&format!("import skyward as sky\n{text}")).contains("`skyward` has no `shrad`"), "{text}");
    }
}
