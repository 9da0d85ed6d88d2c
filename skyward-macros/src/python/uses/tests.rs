use super::super::module::{Lines, Module};
use super::super::version::Target;

fn messages(text: &str) -> Vec<String> {
    let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
    assert!(module.is_valid(), "{text}");
    module.unknown_names()
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
            "import skyward as sky\n\nx = sky.shrad(1)\n",
            "a.py:3:9: `skyward` has no `shrad`; did you mean `shard`?\n3 | x = sky.shrad(1)\n  |         ^^^^^",
        ),
        (
            "import skyward\n@skyward.computte\ndef f(): pass\n",
            "a.py:2:10: `skyward` has no `computte`; did you mean `compute`?\n2 | @skyward.computte\n  |          ^^^^^^^^",
        ),
        (
            "from skyward import shard, shrad as s\n",
            "a.py:1:28: `skyward` has no `shrad`; did you mean `shard`?\n1 | from skyward import shard, shrad as s\n  |                            ^^^^^",
        ),
    ] {
        assert_eq!(message(text), expected);
    }
    for (text, expected) in [
        (
            "def f():\n    import skyward as s\n    return s.is_haed\n",
            "`skyward` has no `is_haed`; did you mean `is_head`?",
        ),
        (
            "import skyward as sky\nsky.integrations.toch\n",
            "`skyward.integrations` has no `toch`; did you mean `torch`?",
        ),
        ("from skyward import integrations as i\n@i.kears()\ndef f(): pass\n", "no `kears`; did you mean `keras`?"),
        ("from skyward.integrations import jaxx\n", "`skyward.integrations` has no `jaxx`; did you mean `jax`?"),
        ("import skyward.integration\n", "`skyward` has no `integration`; did you mean `integrations`?"),
        ("from skyward.integration import jax\n", "`skyward` has no `integration`;"),
        ("import skyward.integrations as si\nsi.torhc\n", "did you mean `torch`?"),
        (
            "import skyward as sky\nsky.integrations.lightning\n",
            "it has `BackendError`, `JoblibPool`, `ScikitLearnPool`, `jax`, `joblib_backend`, `keras`, `sklearn_backend`, `torch` and `transformers`",
        ),
        ("import skyward as sky\nx: sky.InstanceInof\n", "did you mean `InstanceInfo`?"),
        ("import skyward as sky\nimport skyward as sky\nsky.shrad\n", "did you mean `shard`?"),
        ("import skyward as sky\ntry:\n    sky.shrad\nexcept ValueError:\n    pass\n", "did you mean `shard`?"),
    ] {
        assert!(message(text).contains(expected), "{}", message(text));
    }
    assert_eq!(messages("import skyward as sky\nsky.shrad\nsky.comput\n").len(), 2);
}

#[test]
fn keywords_that_are_not_taken_are_found() {
    for (text, expected) in [
        (
            "import skyward as sky\n@sky.integrations.torch(backnd='gloo')\ndef f(): pass\n",
            "a.py:2:25: `skyward.integrations.torch` takes no `backnd`; did you mean `backend`?",
        ),
        (
            "import skyward as sky\nsky.shard([1], shufle=True)\n",
            "`skyward.shard` takes no `shufle`; did you mean `shuffle`?",
        ),
        (
            "from skyward import stdout\n@stdout(onyl='head')\ndef f(): pass\n",
            "`stdout` takes no `onyl`; did you mean `only`?",
        ),
        ("import skyward as sky\nsky.shard([1], workers=2)\n", "it takes `shuffle`, `seed` and `drop_last`"),
        (
            "import skyward as sky\n@sky.silent(only='head')\ndef f(): pass\n",
            "`skyward.silent` takes no `only`; it takes no keywords",
        ),
    ] {
        assert!(message(text).contains(expected), "{}", message(text));
    }
}

#[test]
fn what_is_there_or_not_plain_is_left_alone() {
    for text in [
        "import skyward as sky\n@sky.function\n@sky.compute(anything=1)\n@sky.function()\n@sky.stdout(only='head')\ndef f(): sky.shard([1], seed=2)\n",
        "import skyward as sky\nsky.instance_info().nowhere.shrad\nsky.is_head()\nsky.__version__\nsky._state\n",
        "import skyward.worker\nfrom skyward._state import gang\nfrom skyward import *\nskyward.worker.main\n",
        "import skyward as sky\nsky = other()\nsky.shrad\n",
        "import skyward as sky\ndef f(sky): return sky.shrad\n",
        "import skyward as sky\n[sky.shrad for sky in x]\n",
        "import skyward as sky\nwith x as sky: sky.shrad\n",
        "import skyward as sky\nmatch x:\n    case [sky]: sky.shrad\n",
        "import skyward as sky\nimport clouds as sky\nsky.shrad\n",
        "from .local import sky\nsky.shrad\n",
        "from clouds import skyward\nskyward.shrad\n",
        "import skyward as sky\nsky.shrad = 1\nsky.shrad\n",
        "import skyward as sky\nsetattr(sky, 'shrad', 1)\nsky.shrad\n",
        "import skyward as sky\nsetattr(sky, name, 1)\nsky.shrad\n",
        "import skyward as sky\ngetattr(sky, 'shrad', None)\n",
        "import skyward as sky\nif hasattr(sky, 'shrad'): sky.shrad\n",
        "import skyward as sky\ntry:\n    sky.shrad\nexcept AttributeError:\n    pass\n",
        "try:\n    from skyward import shrad\nexcept (ValueError, ImportError):\n    shrad = None\n",
        "import skyward as sky\nwith contextlib.suppress(AttributeError):\n    sky.shrad\n",
        "import skyward as sky\nsky.shard(x, **options)\n",
    ] {
        assert_eq!(messages(text), [""; 0], "{text}");
    }
}
