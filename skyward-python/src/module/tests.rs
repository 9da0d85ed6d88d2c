use indoc::{formatdoc, indoc};

use super::*;

fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(Finding::to_string).collect()
}

fn errors(text: &str) -> Vec<String> {
    shown(Module::parse("a.py", text, Lines::Own, Target::oldest()).syntax_errors())
}

fn errors_of(version: &str, text: &str) -> Vec<String> {
    let metadata = formatdoc! {"
        # /// script
        # requires-python = '=={version}.*'
        # ///
    "};
    let target = Target::of(&metadata, |line| format!("b.py:{line}"));
    shown(Module::parse("a.py", text, Lines::Own, target).syntax_errors())
}

#[test]
fn every_syntax_error_has_its_place_and_line() {
    let errors = errors(indoc! {"
        def f(x)
            return x


        y = (1 +
    "});
    assert!(errors.len() >= 2, "{errors:#?}");
    assert!(errors[0].starts_with("a.py:1:9: "), "{}", errors[0]);
    assert!(errors[0].ends_with("1 | def f(x)\n  |         ^"), "{}", errors[0]);
}

#[test]
fn what_only_the_compiler_refuses_is_found_too() {
    for (text, words) in [
        ("return 1\n", "return"),
        (
            indoc! {"
                def f():
                    break
            "},
            "break",
        ),
        ("def f(a, a): pass\n", "a"),
        (
            indoc! {"
                class C:
                    yield 1
            "},
            "yield",
        ),
        (
            indoc! {"
                def f():
                    await g()
            "},
            "await",
        ),
        ("from __future__ import braces\n", "braces"),
        (
            indoc! {"
                x = 1
                def f():
                    print(x)
                    global x
            "},
            "`x` is used before `global x`",
        ),
        (
            indoc! {"
                x = 1
                global x
            "},
            "`x` is assigned before `global x`",
        ),
        (
            indoc! {"
                def f():
                    x: int = 1
                    global x
            "},
            "annotated",
        ),
        (
            indoc! {"
                def f():
                    global x
                    x: int = 1
            "},
            "remove the annotation",
        ),
        (
            indoc! {"
                def f():
                    def g():
                        nonlocal x
                    x: int
                    def h():
                        x = 1
                        nonlocal x
            "},
            "assigned before",
        ),
        (
            indoc! {"
                def f():
                    nonlocal x
            "},
            "no function around this one has a variable `x`",
        ),
        (
            indoc! {"
                x = 1
                class C:
                    x = 2
                    def f(self):
                        nonlocal x
            "},
            "variable `x`",
        ),
        (
            indoc! {"
                def f():
                    x = 1
                    def g():
                        global x
                        nonlocal x
            "},
            "both `global` and `nonlocal`",
        ),
        (
            indoc! {"
                try:
                    pass
                except:
                    pass
                except ValueError:
                    pass
            "},
            "must be the last one",
        ),
        (
            indoc! {"
                def f(x):
                    return [(yield y) for y in x]
            "},
            "cannot stand in a comprehension",
        ),
        (
            indoc! {"
                def f(x):
                    return {y for y in x if (yield from y)}
            "},
            "cannot stand in a comprehension",
        ),
        (
            indoc! {"
                for x in y:
                    pass
                else:
                    break
            "},
            "`break` outside loop",
        ),
    ] {
        let errors = errors(text);
        assert_eq!(errors.len(), 1, "{text}: {errors:#?}");
        assert!(errors[0].contains(words), "{}", errors[0]);
    }
}

#[test]
fn valid_code_has_no_errors() {
    let text = "
import asyncio

class C:
    x = [y for y in range(3)]
    def m(self):
        while True:
            break
        for _ in range(3):
            continue
        return lambda: (yield)

async def g():
    async with a as b:
        await b
    y = [await c for c in x]
    return [x async for x in b]

def asynchronous_generator():
    return (i async for i in x if await y(i)), (i for i in x if await y(i))

def h():
    global late
    late = 1
    def inner():
        nonlocal_name = 1
        return nonlocal_name
    x = yield
    match x:
        case [1, *rest]:
            return rest
    try:
        pass
    except ValueError:
        pass
    except:
        pass
    for z in x:
        pass
    else:
        z = [w for w in (yield z)]

def outer():
    def middle():
        nonlocal count
        def innermost():
            nonlocal count
            count += 1
        class Inner:
            nonlocal count
            count = 2
    count = 0

def counter():
    count = 0
    def step(by: count = 1):
        global late
        nonlocal count
        count += by
        [late for late in [1]]
";
    assert_eq!(errors(text), [""; 0]);
}

#[test]
fn syntax_is_checked_for_the_oldest_python() {
    for (text, since) in [
        (
            indoc! {"
                match x:
                    case 1: pass
            "},
            "3.10",
        ),
        ("with (open(a) as b, open(c) as d): pass\n", "3.10"),
        (
            indoc! {"
                try:
                    pass
                except* ValueError:
                    pass
            "},
            "3.11",
        ),
        ("def f(*a: *b): pass\n", "3.11"),
        ("x[*a]\n", "3.11"),
        ("async def f(): return [[d async for d in c] for c in x]\n", "3.11"),
        ("type A = int\n", "3.12"),
        ("def f[T](a: T): pass\n", "3.12"),
        ("class C[T]: pass\n", "3.12"),
        ("f'{x['a']}'\n", "3.12"),
        ("f'{'\\n'.join(x)}'\n", "3.12"),
        ("class C[T = int]: pass\n", "3.13"),
        (
            indoc! {"
                try:
                    pass
                except A, B:
                    pass
            "},
            "3.14",
        ),
        ("t'{x}'\n", "3.14"),
    ] {
        for version in ["3.10", "3.11", "3.12", "3.13", "3.14"] {
            let minor = |version: &str| version[2..].parse::<u8>().unwrap();
            let errors = errors_of(version, text);
            if minor(version) >= minor(since) {
                assert_eq!(errors, [""; 0], "{text} on {version}");
            } else {
                let last = errors.last().unwrap();
                assert!(
                    last.contains("before Python 3.1") && last.contains(&format!("allows Python {version}")),
                    "{last}"
                );
                assert!(errors.iter().any(|it| it.contains(&format!("before Python {since}\n"))), "{errors:#?}");
            }
        }
    }
}

#[test]
fn an_error_of_a_version_says_what_to_do() {
    assert_eq!(
        errors("type A = int\n"),
        ["a.py:1:1: cannot use `type` alias statement before Python 3.12\n1 | type A = int\n  | ^^^^\n\
          nodes may have Python 3.10, the oldest that payloads run on: write it for 3.10, or say \
          `# requires-python = \">=3.12\"` in the metadata (PEP 723) at the top of the Python"]
    );
}

#[test]
fn columns_count_characters() {
    let module = Module::parse("a.py", "é = 'ü' +\n", Lines::Own, Target::oldest());
    assert!(module.syntax_errors()[0].to_string().starts_with("a.py:1:10: "), "{:?}", module.syntax_errors());
}
