use std::thread;

use ruff_python_parser::Mode;

use super::*;
use crate::{Body, Entry, Finding, Kind, Literal, Payload};

/// Runs something on a thread with less stack than any that Rust programs start.
fn on_a_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work).unwrap();
        thread.join().unwrap()
    })
}

/// All that is checked of a file.
fn findings(text: &str) -> Vec<Finding> {
    on_a_small_stack(|| {
        let payload = Payload::from_text("a.py", text);
        let mut found = payload.findings();
        found.extend(payload.undefined_names());
        found.extend(payload.entry_findings());
        if let Ok(Entry::Function { function, .. }) = payload.entry("f", false) {
            payload.returned(&function);
        }
        found
    })
}

/// Texts with something that is nested so many levels deep.
fn nested(levels: usize) -> Vec<(&'static str, String)> {
    let around = |open: &str, close: &str| format!("{}a{}", open.repeat(levels), close.repeat(levels));
    let expressions = [
        ("sum", around("1 + ", "")),
        ("attributes", around("", ".b")),
        ("calls", around("", "()")),
        ("subscripts", around("", "[0]")),
        ("signs", around("-", "")),
        ("negations", around("not ", "")),
        ("powers", around("", " ** a")),
        ("lambdas", around("lambda: ", "")),
        ("choices", around("a if a else ", "")),
    ];
    let mut texts = Vec::new();
    for (name, expression) in expressions {
        texts.push((name, format!("a = 1\nx = {expression}\n")));
        // Where it is read in other ways: as a default, a decorator, an annotation.
        texts.push((
            name,
            format!("a = 1\n@{expression}\ndef f(b: {expression} = {expression}) -> {expression}: pass\n"),
        ));
    }
    texts
}

/// The same with brackets and blocks, of which Python allows fewer.
fn bracketed(levels: usize) -> Vec<(&'static str, String)> {
    let around = |open: &str, close: &str| format!("a = 1\nx = {}a{}\n", open.repeat(levels), close.repeat(levels));
    let block = |line: &str| {
        let lines = (0..levels).map(|level| format!("{}{line}\n", " ".repeat(level)));
        format!("{}{}pass\n", lines.collect::<String>(), " ".repeat(levels))
    };
    vec![
        ("parentheses", around("(a + ", ")")),
        ("lists", around("[", "]")),
        ("arguments", around("print(", ")")),
        ("keywords", around("print(end=", ")")),
        ("comprehensions", around("[a for a in ", "]")),
        ("dictionaries", around("{a: ", "}")),
        ("functions", block("def f():")),
        ("classes", block("class f:")),
        ("conditions", block("if 1:")),
        ("patterns", format!("a = 1\nmatch a:\n    case {}1{}: pass\n", "[".repeat(levels), "]".repeat(levels))),
    ]
}

#[test]
fn trees_up_to_the_limit_are_checked_on_any_stack() {
    for (name, text) in nested(DEEPEST - 10) {
        assert_eq!(findings(&text), [], "{name}");
    }
    // Between one level and the next are up to three nodes.
    for (name, text) in bracketed(DEEPEST / 4) {
        let found = findings(&text);
        assert!(found.iter().all(|found| !found.message().contains("nested")), "{name}: {found:?}");
    }
}

#[test]
fn deeper_trees_give_one_finding_on_any_stack() {
    for (name, text) in nested(8_000).into_iter().chain(bracketed(4_000)) {
        let found = findings(&text);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!(found[0].kind(), Kind::Compiler, "{name}");
        assert!(found[0].message().contains("nested more than 3000 levels deep"), "{name}: {}", found[0]);
        assert!(found[0].line().is_some() && found[0].to_string().len() < 1000, "{name}: {}", found[0]);
        let is_statement = |text: &str| ["x", "@", "def", "class", "if", "match"].iter().any(|it| text.starts_with(it));
        let excerpt = found[0].excerpt().unwrap().split_once("| ").unwrap().1;
        assert!(is_statement(excerpt.trim_start_matches([' ', '…'])), "{name}: {}", found[0]);
    }
    let sum = format!("x = {}1\n", "1+".repeat(100_000));
    let found = findings(&format!("y = 1\n{sum}"));
    assert_eq!(found.iter().map(|found| (found.line(), found.column())).collect::<Vec<_>>(), [(Some(2), Some(1))]);
}

#[test]
fn what_is_long_and_not_deep_is_checked() {
    let clauses = |line: &str| (0..20_000).map(|_| line.to_owned()).collect::<String>();
    for (name, text) in [
        ("elif", format!("if 1: pass\n{}", clauses("elif 1: pass\n"))),
        ("or", format!("x = {}1\n", clauses("1 or "))),
        ("comparisons", format!("x = {}1\n", clauses("1 < "))),
        ("strings", format!("x = ({})\n", clauses("'a' "))),
        ("items", format!("x = [{}]\n", clauses("-1, "))),
        ("statements", clauses("x = 1\n")),
    ] {
        assert_eq!(findings(&text), [], "{name}");
    }
}

#[test]
fn what_the_parser_tries_in_vain_needs_no_stack() {
    let sum = format!("{}1", "1+".repeat(50_000));
    for text in [format!("match ({sum})\n"), format!("with ({sum}) + 1: pass\n")] {
        assert_eq!(findings(&text).len(), 1);
    }
}

#[test]
fn bodies_and_quoted_annotations_may_be_deep_too() {
    let sum = format!("{}1", "1 + ".repeat(50_000));
    let literal = Literal { path: "src/main.rs".into(), line: 7, column: 6, height: 1 };
    let found = on_a_small_stack(|| {
        let body = Body::new("f", &[], &format!("return {sum}"), literal);
        assert!(body.function().is_none());
        body.findings()
    });
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kind(), Kind::Compiler);
    assert_eq!(found[0].line(), Some(7));
    for levels in [100, DEEPEST - 10, 50_000] {
        let optional = format!("{}C{}", "Optional[".repeat(levels), "]".repeat(levels));
        assert_eq!(findings(&format!("class C: pass\ndef f() -> '{optional}': pass\n")), [], "{levels}");
    }
    assert!(Tree::parse(&sum, Mode::Expression).expression().is_none());
}
