use super::*;

fn errors(text: &str) -> Vec<String> {
    Module::parse("a.py", text, Lines::Own, Target::oldest()).syntax_errors()
}

fn errors_of(version: &str, text: &str) -> Vec<String> {
    let metadata = format!("# /// script\n# requires-python = '=={version}.*'\n# ///\n");
    let target = Target::of(&metadata, |line| format!("b.py:{line}"));
    Module::parse("a.py", text, Lines::Own, target).syntax_errors()
}

#[test]
fn every_syntax_error_has_its_place_and_line() {
    let errors = errors("def f(x)\n    return x\n\n\ny = (1 +\n");
    assert!(errors.len() >= 2, "{errors:#?}");
    assert!(errors[0].starts_with("a.py:1:9: "), "{}", errors[0]);
    assert!(errors[0].ends_with("1 | def f(x)\n  |         ^"), "{}", errors[0]);
}

#[test]
fn what_only_the_compiler_refuses_is_found_too() {
    for (text, words) in [
        ("return 1\n", "return"),
        ("def f():\n    break\n", "break"),
        ("def f(a, a): pass\n", "a"),
        ("class C:\n    yield 1\n", "yield"),
        ("def f():\n    await g()\n", "await"),
        ("from __future__ import braces\n", "braces"),
        ("x = 1\ndef f():\n    print(x)\n    global x\n", "`x` is used before `global x`"),
        ("x = 1\nglobal x\n", "`x` is assigned before `global x`"),
        ("def f():\n    x: int = 1\n    global x\n", "annotated"),
        ("def f():\n    global x\n    x: int = 1\n", "remove the annotation"),
        (
            "def f():\n    def g():\n        nonlocal x\n    x: int\n    def h():\n        x = 1\n        nonlocal x\n",
            "assigned before",
        ),
        ("def f():\n    nonlocal x\n", "no function around this one has a variable `x`"),
        ("x = 1\nclass C:\n    x = 2\n    def f(self):\n        nonlocal x\n", "variable `x`"),
        ("def f():\n    x = 1\n    def g():\n        global x\n        nonlocal x\n", "both `global` and `nonlocal`"),
        ("try:\n    pass\nexcept:\n    pass\nexcept ValueError:\n    pass\n", "must be the last one"),
        ("def f(x):\n    return [(yield y) for y in x]\n", "cannot stand in a comprehension"),
        ("def f(x):\n    return {y for y in x if (yield from y)}\n", "cannot stand in a comprehension"),
        ("for x in y:\n    pass\nelse:\n    break\n", "`break` outside loop"),
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
        ("match x:\n    case 1: pass\n", "3.10"),
        ("with (open(a) as b, open(c) as d): pass\n", "3.10"),
        ("try:\n    pass\nexcept* ValueError:\n    pass\n", "3.11"),
        ("def f(*a: *b): pass\n", "3.11"),
        ("x[*a]\n", "3.11"),
        ("async def f(): return [[d async for d in c] for c in x]\n", "3.11"),
        ("type A = int\n", "3.12"),
        ("def f[T](a: T): pass\n", "3.12"),
        ("class C[T]: pass\n", "3.12"),
        ("f'{x['a']}'\n", "3.12"),
        ("f'{'\\n'.join(x)}'\n", "3.12"),
        ("class C[T = int]: pass\n", "3.13"),
        ("try:\n    pass\nexcept A, B:\n    pass\n", "3.14"),
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
fn the_last_binding_holds() {
    let text = "
def f(a): pass
try:
    from .fast import f as f
except ImportError:
    def g(): pass
class h:
    def inner(self): pass
k = f
";
    let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
    assert!(matches!(module.find("f"), Some(Binding::Import { level: 1, module: "fast", name: "f", .. })));
    assert!(matches!(module.find("g"), Some(Binding::Function(_))));
    assert!(matches!(module.find("h"), Some(Binding::Other { what: "a class", .. })));
    assert!(matches!(module.find("k"), Some(Binding::Other { what: "assigned", .. })));
    assert!(module.find("inner").is_none());
    assert_eq!(module.function_names(), ["f", "g"]);
}

#[test]
fn columns_count_characters() {
    let module = Module::parse("a.py", "é = 'ü' +\n", Lines::Own, Target::oldest());
    assert!(module.syntax_errors()[0].starts_with("a.py:1:10: "), "{:?}", module.syntax_errors());
}
