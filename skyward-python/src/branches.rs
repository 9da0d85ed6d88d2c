//! Branches that a payload never takes, may not take, or in which it expects to fail.

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{CmpOp, ElifElseClause, ExceptHandler, Expr, Stmt, StmtIf, StmtTry, WithItem};

/// What a condition is on a worker, as far as it is plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Truth {
    Never,
    Always,
    /// It asks for a version, so what stands behind it may be for a Python that the worker does not
    /// have.
    Version,
    Unknown,
}

/// What a condition is: a payload's file is imported, so its `__name__` is not `"__main__"`.
pub(super) fn truth(test: &Expr) -> Truth {
    match test {
        Expr::BooleanLiteral(literal) => {
            if literal.value {
                Truth::Always
            } else {
                Truth::Never
            }
        }
        Expr::NoneLiteral(_) => Truth::Never,
        Expr::NumberLiteral(number) if number.value.as_int().is_some_and(|int| *int == 0) => Truth::Never,
        Expr::Name(name) if name.id.as_str() == TYPE_CHECKING => Truth::Never,
        Expr::Attribute(attribute) if attribute.attr.as_str() == TYPE_CHECKING => Truth::Never,
        Expr::Compare(compare) if is_main(&compare.left, &compare.comparators) => match *compare.ops {
            [CmpOp::Eq] => Truth::Never,
            [CmpOp::NotEq] => Truth::Always,
            _ => Truth::Unknown,
        },
        Expr::BoolOp(operation)
            if operation.op.is_and() && operation.values.iter().any(|it| truth(it) == Truth::Never) =>
        {
            Truth::Never
        }
        _ if asks_for_version(test) => Truth::Version,
        _ => Truth::Unknown,
    }
}

/// The bodies of an `if`, each with whether a worker may run it.
pub(super) fn branches(statement: &StmtIf) -> impl Iterator<Item = (&[Stmt], Truth)> {
    let clauses = statement.elif_else_clauses.iter();
    let written = std::iter::once((Some(&*statement.test), &*statement.body))
        .chain(clauses.map(|ElifElseClause { test, body, .. }| (test.as_ref(), &**body)));
    let mut before = Truth::Unknown;
    written.map(move |(test, body)| {
        let own = test.map_or(Truth::Always, truth);
        let taken = match (before, own) {
            (Truth::Always, _) | (_, Truth::Never) => Truth::Never,
            (Truth::Version, _) | (_, Truth::Version) => Truth::Version,
            _ => own,
        };
        if before != Truth::Always && matches!(own, Truth::Always | Truth::Version) {
            before = own;
        }
        (body, taken)
    })
}

/// Whether one of its handlers takes one of these exceptions.
pub(super) fn handles(attempt: &StmtTry, exceptions: &[&str]) -> bool {
    // What is computed may be any of these.
    let is_one = |kind: &Expr| !matches!(kind, Expr::Name(name) if !exceptions.contains(&name.id.as_str()));
    attempt.handlers.iter().any(|handler| {
        let ExceptHandler::ExceptHandler(handler) = handler;
        match handler.type_.as_deref() {
            None => true,
            Some(Expr::Tuple(kinds)) => kinds.elts.iter().any(is_one),
            Some(kind) => is_one(kind),
        }
    })
}

/// `with suppress(…)`
pub(super) fn suppresses(items: &[WithItem]) -> bool {
    items.iter().any(|item| {
        let Expr::Call(call) = &item.context_expr else { return false };
        match &*call.func {
            Expr::Name(name) => name.id.as_str() == "suppress",
            Expr::Attribute(attribute) => attribute.attr.as_str() == "suppress",
            _ => false,
        }
    })
}

fn is_main(left: &Expr, right: &[Expr]) -> bool {
    let is_name = |side: &Expr| matches!(side, Expr::Name(name) if name.id.as_str() == "__name__");
    let is_text = |side: &Expr| matches!(side, Expr::StringLiteral(text) if text.value.to_str() == "__main__");
    matches!(right, [right] if is_name(left) && is_text(right) || is_text(left) && is_name(right))
}

fn asks_for_version(test: &Expr) -> bool {
    struct Words(bool);
    impl<'a> Visitor<'a> for Words {
        fn visit_expr(&mut self, expression: &'a Expr) {
            let name = match expression {
                Expr::Name(name) => name.id.as_str(),
                Expr::Attribute(attribute) => attribute.attr.as_str(),
                _ => "",
            };
            let name = name.to_ascii_lowercase();
            self.0 |= ["version", "py2", "py3"].iter().any(|word| name.contains(word));
            walk_expr(self, expression);
        }
    }
    let mut words = Words(false);
    words.visit_expr(test);
    words.0
}

const TYPE_CHECKING: &str = "TYPE_CHECKING";

#[cfg(test)]
mod tests {
    use indoc::indoc;
    use ruff_python_parser::parse_module;

    use super::*;

    #[test]
    fn branches_are_told_apart() {
        use Truth::{Always, Never, Unknown, Version};
        for (text, expected) in [
            (
                indoc! {"
                    if __name__ == '__main__': a
                    else: b
                "},
                vec![Never, Always],
            ),
            (
                indoc! {"
                    if '__main__' == __name__ and x: a
                    elif y: b
                "},
                vec![Never, Unknown],
            ),
            (
                indoc! {"
                    if __name__ != '__main__': a
                    else: b
                "},
                vec![Always, Never],
            ),
            (
                indoc! {"
                    if __name__ == 'x': a
                    else: b
                "},
                vec![Unknown, Always],
            ),
            (
                indoc! {"
                    if typing.TYPE_CHECKING: a
                    if x: b
                "},
                vec![Never],
            ),
            (
                indoc! {"
                    if False: a
                    elif 0: b
                    elif None: c
                    elif True: d
                    else: e
                "},
                vec![Never, Never, Never, Always, Never],
            ),
            (
                indoc! {"
                    if sys.version_info >= (3, 11): a
                    elif z: b
                    else: c
                "},
                vec![Version, Version, Version],
            ),
            (
                indoc! {"
                    if PY2: a
                    else: b
                "},
                vec![Version, Version],
            ),
            (
                indoc! {"
                    if True: a
                    elif PY2: b
                    else: c
                "},
                vec![Always, Never, Never],
            ),
            ("if x or __name__ == '__main__': a\n", vec![Unknown]),
        ] {
            let parsed = parse_module(text).unwrap();
            let Stmt::If(statement) = &parsed.suite()[0] else { panic!("{text}") };
            let found: Vec<_> = branches(statement).map(|(_, truth)| truth).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
