use indoc::{formatdoc, indoc};

use super::super::module::{Lines, Module};
use super::super::version::Target;

fn messages(version: &str, text: &str) -> Vec<String> {
    let metadata = formatdoc! {"
        # /// script
        # requires-python = '>={version}'
        # ///
    "};
    let module = Module::parse("a.py", text, Lines::Own, Target::of(&metadata, |line| line.to_string()));
    assert_eq!(module.syntax_errors(), [], "{text}");
    module.undefined_names(Some(&["a", "b"])).iter().map(ToString::to_string).collect()
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
fn a_name_that_nothing_defines_is_shown_where_it_stands() {
    assert_eq!(
        message(indoc! {"
            epochs = 3
            return epoch
        "}),
        indoc! {"
            a.py:3:12: `epoch` is not defined; did you mean `epochs`?
            3 |     return epoch
              |            ^^^^^"}
    );
}

#[test]
fn names_that_nothing_defines_are_found() {
    for (text, expected) in [
        ("return np.mean(a)", "`np` is not defined: write `import numpy as np` above it"),
        ("return json.dumps(a)", "write `import json` above it"),
        ("return learning_rate", "a body sees what it binds, and the arguments of its function, here `a` and `b`"),
        ("return a if true else b", "did you mean `True`?"),
        ("pritn(a)", "did you mean `print`?"),
        ("return null", "`null` is not defined"),
        (
            indoc! {"
                return f'{missing!r:>{width}}' + f'{width}'
                width = 1
            "},
            "`missing` is not defined",
        ),
        ("def g(x=other): pass", "`other` is not defined"),
        (
            indoc! {"
                @decorated
                def g(): pass
            "},
            "`decorated` is not defined",
        ),
        ("class C(Base): pass", "`Base` is not defined"),
        (
            indoc! {"
                class C:
                    size = 3
                    def g(self): return size
            "},
            "`size` is not defined",
        ),
        (
            indoc! {"
                class C:
                    size = 3
                    z = [size for _ in a]
            "},
            "`size` is not defined",
        ),
        (
            indoc! {"
                x = [y for y in a]
                return y
            "},
            "`y` is not defined",
        ),
        (
            indoc! {"
                x = lambda y: y
                return y
            "},
            "`y` is not defined",
        ),
        (
            indoc! {"
                def g():
                    inner = 1
                return inner
            "},
            "`inner` is not defined",
        ),
        (
            indoc! {"
                def g():
                    global x
                    return x
            "},
            "`x` is not defined",
        ),
        (
            indoc! {"
                match a:
                    case Point(x=0): pass
            "},
            "`Point` is not defined",
        ),
        ("def g(x: Model): pass", "`Model` is not defined"),
        (
            indoc! {"
                try:
                    return missing
                except ValueError: pass
            "},
            "`missing` is not defined",
        ),
        (
            indoc! {"
                from . import x
                return (lambda: missing)()
            "},
            "`missing` is not defined",
        ),
        ("a[missing] = 1", "`missing` is not defined"),
        ("a.x = missing", "`missing` is not defined"),
        ("async def g(): await missing", "`missing` is not defined"),
        ("with a as c, missing as d: pass", "`missing` is not defined"),
        (
            indoc! {"
                model = a
                model.eval()
                model.modules()
                return missing
            "},
            "`missing` is not defined",
        ),
        (
            indoc! {"
                if a:
                    return missing
            "},
            "`missing` is not defined",
        ),
        (
            indoc! {"
                import sympy, numpy as np
                np.var(a)
                a.var()
                return missing
            "},
            "`missing` is not defined",
        ),
        ("return missing or None", "`missing` is not defined"),
        ("return [missing := 1 for _ in c]", "`c` is not defined"),
    ] {
        assert!(message(text).contains(expected), "{text}: {}", message(text));
    }
}

#[test]
fn each_name_that_nothing_defines_is_told_once() {
    let text = indoc! {"
        x + x + y
        x + y
    "};
    assert_eq!(messages("3.10", &body(text)).len(), 2);
}

#[test]
fn what_is_defined_somehow_is_left_alone() {
    for text in [
        "return a + b + f(1, 2) + len(a) + __name__ + _('x')",
        indoc! {"
            import os.path, numpy as np
            from x import y as z, w
            return os, np, z, w
        "},
        indoc! {"
            for x, (y, *z) in a: pass
            else: return x, y, z
        "},
        "with a as x, b as (y, z): return x, y, z",
        indoc! {"
            try: pass
            except ValueError as e: print(e)
        "},
        "if (n := len(a)) > 1: return n",
        indoc! {"
            x = [last := y for y in a]
            return last
        "},
        "return [(x, y) for x in a for y in x if x if y]",
        "return {k: v for k, v in a}, {x for x in a}, (x for x in a)",
        "return [[x for x in y] for y in a]",
        indoc! {"
            x = 1
            def g():
                def h(): return x
                return h
            return g
        "},
        indoc! {"
            def g(): return later
            later = 1
            return g
        "},
        indoc! {"
            class C:
                size = 3
                double = size * 2
                def g(self): return __class__, self
                z = [x for x in range(size)]
        "},
        indoc! {"
            class C:
                def g(self) -> C: return C
        "},
        indoc! {"
            def g():
                global x
                x = 1
            g()
            return x
        "},
        indoc! {"
            x = 0
            def g():
                nonlocal x
                x += 1
                return x
            return g
        "},
        indoc! {"
            match a:
                case [x, *rest]: return x, rest
                case {'k': v, **others}: return v, others
                case str() as s: return s
                case y: return y
        "},
        indoc! {"
            del a
            x: int = 1
            y: Missing = x
            return y
        "},
        "def g(x, /, y=1, *args, z, **kw): return x, y, args, z, kw",
        "return lambda x, *y, z=a, **w: (x, y, z, w)",
        indoc! {"
            try: return unicode
            except NameError: return str
        "},
        indoc! {"
            try: return unicode
            except: return str
        "},
        indoc! {"
            try: return unicode
            except (TypeError, errors.Any): return str
            import errors
        "},
        indoc! {"
            import contextlib
            with contextlib.suppress(NameError): return unicode
        "},
        indoc! {"
            import sys
            if sys.version_info < (3,): return unicode
            else: return chr
        "},
        indoc! {"
            from six import PY2
            return unicode if PY2 else str
        "},
        indoc! {"
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                print(missing)
        "},
        "if False: missing",
        "return False and missing",
        indoc! {"
            import sys
            return sys.version_info < (3, 11) or missing
        "},
        indoc! {"
            exec('x = 1')
            return x
        "},
        indoc! {"
            globals()['x'] = 1
            return x
        "},
        indoc! {"
            globals().update(a)
            return x
        "},
        indoc! {"
            locals().update(a)
            return x
        "},
        indoc! {"
            import builtins
            builtins.x = 1
            return x
        "},
        indoc! {"
            import sys
            setattr(sys.modules[__name__], 'x', 1)
            return x
        "},
        indoc! {"
            f.__globals__['x'] = 1
            return x
        "},
        indoc! {"
            import sympy
            sympy.var('x y')
            return x + y
        "},
        indoc! {"
            import sympy as sp
            sp.var('x')
            return sp.sin(x)
        "},
        indoc! {"
            from sympy import sin, var as v
            v('x')
            return sin(x)
        "},
        "return x if 'x' in dir() else None",
        "raise ExceptionGroup('x', [])",
        indoc! {"
            async def g():
                async for x in a: print(x)
                async with a as y: return y
                return [z async for z in a]
        "},
        "def g(x: 'Missing') -> 'Missing': pass",
        "print(f'{a!r:>{b}} {len(a):{b}.{a}}')",
    ] {
        assert_eq!(messages("3.10", &body(text)), [""; 0], "{text}");
    }
}

#[test]
fn annotations_that_are_not_evaluated_may_name_anything() {
    assert_eq!(messages("3.14", &body("def g(x: Missing): pass")), [""; 0]);
}

#[test]
fn type_parameters_are_defined() {
    let generic = indoc! {"
        def g[T: Missing](x: T) -> T:
            y: T = x
            return y
        class C[T](list[T]):
            def g(self, x: T): pass
        type A[T] = list[T] | Missing
    "};
    assert_eq!(messages("3.12", &body(generic)), [""; 0]);
}

#[test]
fn names_of_a_file_are_those_that_it_reads_when_it_runs() {
    let found = |text: &str| -> Vec<String> {
        let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
        assert_eq!(module.syntax_errors(), [], "{text}");
        module.undefined_names(None).iter().map(|finding| finding.message().to_owned()).collect()
    };
    assert_eq!(found("def f(a: Model): return b\n").len(), 2);
    assert_eq!(
        found("from __future__ import annotations\ndef f(a: Model): return missing\n"),
        ["`missing` is not defined: neither the file nor Python defines it"]
    );
    assert_eq!(found("x = __file__, __name__\n"), [""; 0]);
}
