use super::super::module::{Lines, Module};
use super::super::version::Target;

fn messages(version: &str, text: &str) -> Vec<String> {
    let metadata = format!("# /// script\n# requires-python = '>={version}'\n# ///\n");
    let module = Module::parse("a.py", text, Lines::Own, Target::of(&metadata, |line| line.to_string()));
    assert_eq!(module.syntax_errors(), [""; 0], "{text}");
    module.undefined_names(&["a", "b"])
}

fn body(text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("    {line}\n")).collect();
    format!("def f(a, b):\n{lines}")
}

fn message(text: &str) -> String {
    let mut found = messages("3.10", &body(text));
    assert_eq!(found.len(), 1, "{text}: {found:#?}");
    found.remove(0)
}

#[test]
fn names_that_nothing_defines_are_found_where_they_stand() {
    assert_eq!(
        message("epochs = 3\nreturn epoch"),
        "a.py:3:12: `epoch` is not defined; did you mean `epochs`?\n3 |     return epoch\n  |            ^^^^^"
    );
    for (text, expected) in [
        ("return np.mean(a)", "`np` is not defined: write `import numpy as np` above it"),
        ("return json.dumps(a)", "write `import json` above it"),
        ("return learning_rate", "a body sees what it binds, and the arguments of its function, here `a` and `b`"),
        ("return a if true else b", "did you mean `True`?"),
        ("pritn(a)", "did you mean `print`?"),
        ("return null", "`null` is not defined"),
        ("return f'{missing!r:>{width}}' + f'{width}'\nwidth = 1", "`missing` is not defined"),
        ("def g(x=other): pass", "`other` is not defined"),
        ("@decorated\ndef g(): pass", "`decorated` is not defined"),
        ("class C(Base): pass", "`Base` is not defined"),
        ("class C:\n    size = 3\n    def g(self): return size", "`size` is not defined"),
        ("class C:\n    size = 3\n    z = [size for _ in a]", "`size` is not defined"),
        ("x = [y for y in a]\nreturn y", "`y` is not defined"),
        ("x = lambda y: y\nreturn y", "`y` is not defined"),
        ("def g():\n    inner = 1\nreturn inner", "`inner` is not defined"),
        ("def g():\n    global x\n    return x", "`x` is not defined"),
        ("match a:\n    case Point(x=0): pass", "`Point` is not defined"),
        ("def g(x: Model): pass", "`Model` is not defined"),
        ("try:\n    return missing\nexcept ValueError: pass", "`missing` is not defined"),
        ("from . import x\nreturn (lambda: missing)()", "`missing` is not defined"),
        ("a[missing] = 1", "`missing` is not defined"),
        ("a.x = missing", "`missing` is not defined"),
        ("async def g(): await missing", "`missing` is not defined"),
        ("with a as c, missing as d: pass", "`missing` is not defined"),
        ("model = a\nmodel.eval()\nmodel.modules()\nreturn missing", "`missing` is not defined"),
        ("if a:\n    return missing", "`missing` is not defined"),
        ("import sympy, numpy as np\nnp.var(a)\na.var()\nreturn missing", "`missing` is not defined"),
        ("return missing or None", "`missing` is not defined"),
        ("return [missing := 1 for _ in c]", "`c` is not defined"),
    ] {
        assert!(message(text).contains(expected), "{text}: {}", message(text));
    }
    assert_eq!(messages("3.10", &body("x + x + y\nx + y")).len(), 2, "each name is told once");
}

#[test]
fn what_is_defined_somehow_is_left_alone() {
    for text in [
        "return a + b + f(1, 2) + len(a) + __name__ + _('x')",
        "import os.path, numpy as np\nfrom x import y as z, w\nreturn os, np, z, w",
        "for x, (y, *z) in a: pass\nelse: return x, y, z",
        "with a as x, b as (y, z): return x, y, z",
        "try: pass\nexcept ValueError as e: print(e)",
        "if (n := len(a)) > 1: return n",
        "x = [last := y for y in a]\nreturn last",
        "return [(x, y) for x in a for y in x if x if y]",
        "return {k: v for k, v in a}, {x for x in a}, (x for x in a)",
        "return [[x for x in y] for y in a]",
        "x = 1\ndef g():\n    def h(): return x\n    return h\nreturn g",
        "def g(): return later\nlater = 1\nreturn g",
        "class C:\n    size = 3\n    double = size * 2\n    def g(self): return __class__, self\n    z = [x for x in range(size)]",
        "class C:\n    def g(self) -> C: return C",
        "def g():\n    global x\n    x = 1\ng()\nreturn x",
        "x = 0\ndef g():\n    nonlocal x\n    x += 1\n    return x\nreturn g",
        "match a:\n    case [x, *rest]: return x, rest\n    case {'k': v, **others}: return v, others\n    case str() as s: return s\n    case y: return y",
        "del a\nx: int = 1\ny: Missing = x\nreturn y",
        "def g(x, /, y=1, *args, z, **kw): return x, y, args, z, kw",
        "return lambda x, *y, z=a, **w: (x, y, z, w)",
        "try: return unicode\nexcept NameError: return str",
        "try: return unicode\nexcept: return str",
        "try: return unicode\nexcept (TypeError, errors.Any): return str\nimport errors",
        "import contextlib\nwith contextlib.suppress(NameError): return unicode",
        "import sys\nif sys.version_info < (3,): return unicode\nelse: return chr",
        "from six import PY2\nreturn unicode if PY2 else str",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    print(missing)",
        "if False: missing",
        "return False and missing",
        "import sys\nreturn sys.version_info < (3, 11) or missing",
        "exec('x = 1')\nreturn x",
        "globals()['x'] = 1\nreturn x",
        "globals().update(a)\nreturn x",
        "locals().update(a)\nreturn x",
        "import builtins\nbuiltins.x = 1\nreturn x",
        "import sys\nsetattr(sys.modules[__name__], 'x', 1)\nreturn x",
        "f.__globals__['x'] = 1\nreturn x",
        "import sympy\nsympy.var('x y')\nreturn x + y",
        "import sympy as sp\nsp.var('x')\nreturn sp.sin(x)",
        "from sympy import sin, var as v\nv('x')\nreturn sin(x)",
        "return x if 'x' in dir() else None",
        "raise ExceptionGroup('x', [])",
        "async def g():\n    async for x in a: print(x)\n    async with a as y: return y\n    return [z async for z in a]",
        "def g(x: 'Missing') -> 'Missing': pass",
        "print(f'{a!r:>{b}} {len(a):{b}.{a}}')",
    ] {
        assert_eq!(messages("3.10", &body(text)), [""; 0], "{text}");
    }
    assert_eq!(messages("3.14", &body("def g(x: Missing): pass")), [""; 0], "it is not evaluated there");
    let generic = "def g[T: Missing](x: T) -> T:\n    y: T = x\n    return y\nclass C[T](list[T]):\n    def g(self, x: T): pass\ntype A[T] = list[T] | Missing\n";
    assert_eq!(messages("3.12", &body(generic)), [""; 0]);
}
