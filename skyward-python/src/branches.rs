//! Which code a worker may run: branches that it never takes, may not take, or in which it expects
//! to fail. All checks ask here, so that one of them does not refuse what another passes over.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{BoolOp, CmpOp, ElifElseClause, ExceptHandler, Expr, Stmt, StmtIf, StmtTry, UnaryOp, WithItem};

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

impl Truth {
    fn plain(value: bool) -> Self {
        if value { Self::Always } else { Self::Never }
    }

    /// What the negation of the condition is.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Never => Self::Always,
            Self::Always => Self::Never,
            open => open,
        }
    }

    /// Whether the operands behind one of this truth are never evaluated.
    pub(super) fn decides(self, operator: BoolOp) -> bool {
        self == Self::plain(operator == BoolOp::Or)
    }
}

/// What a condition is: a payload's file is imported, so its `__name__` is not `"__main__"`.
pub(super) fn truth(test: &Expr) -> Truth {
    let plain = match test {
        Expr::BooleanLiteral(literal) => Truth::plain(literal.value),
        Expr::NoneLiteral(_) => Truth::Never,
        Expr::NumberLiteral(number) => number.value.as_int().map_or(Truth::Unknown, |int| Truth::plain(*int != 0)),
        Expr::Name(name) if name.id.as_str() == TYPE_CHECKING => Truth::Never,
        Expr::Attribute(attribute) if attribute.attr.as_str() == TYPE_CHECKING => Truth::Never,
        Expr::Compare(compare) => match (&*compare.ops, &*compare.comparators) {
            ([operator], [right]) => asks_for_main(&compare.left, *operator, right),
            _ => Truth::Unknown,
        },
        Expr::UnaryOp(negation) if negation.op == UnaryOp::Not => truth(&negation.operand).negated(),
        Expr::BoolOp(operation) => {
            let decided = Truth::plain(operation.op == BoolOp::Or);
            let mut values = operation.values.iter().map(truth);
            if values.clone().any(|value| value == decided) {
                decided
            } else if values.all(|value| value == decided.negated()) {
                decided.negated()
            } else {
                Truth::Unknown
            }
        }
        _ => Truth::Unknown,
    };
    if plain == Truth::Unknown && asks_for_version(test) { Truth::Version } else { plain }
}

/// The bodies of an `if`, each with whether a worker may run it.
pub(super) fn branches(statement: &StmtIf) -> impl Iterator<Item = (&[Stmt], Truth)> {
    clauses(statement).map(|(_, body, taken)| (body, taken))
}

/// The conditions and bodies of an `if`, each with whether a worker may run the body.
fn clauses(statement: &StmtIf) -> impl Iterator<Item = (Option<&Expr>, &[Stmt], Truth)> {
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
        (test, body, taken)
    })
}

/// The statements of a body that a worker may reach: not those behind a `return`.
pub(super) fn reached(body: &[Stmt]) -> &[Stmt] {
    let last = body.iter().position(ends).unwrap_or(body.len());
    &body[..body.len().min(last + 1)]
}

/// Visits the statements of a body that a worker may reach.
pub(super) fn walk_reached<'a, V: Visitor<'a>>(visitor: &mut V, body: &'a [Stmt]) {
    reached(body).iter().for_each(|statement| visitor.visit_stmt(statement));
}

/// Visits what a statement holds and a worker may run.
pub(super) fn walk_run_stmt<'a, V: Visitor<'a>>(visitor: &mut V, statement: &'a Stmt) {
    match statement {
        Stmt::If(inner) => {
            for (test, body, taken) in clauses(inner) {
                test.into_iter().for_each(|test| visitor.visit_expr(test));
                if taken != Truth::Never {
                    visitor.visit_body(body);
                }
                if taken == Truth::Always {
                    break;
                }
            }
        }
        Stmt::While(inner) if truth(&inner.test) == Truth::Never => {
            visitor.visit_expr(&inner.test);
            visitor.visit_body(&inner.orelse);
        }
        _ => walk_stmt(visitor, statement),
    }
}

/// As [`walk_run_stmt`], but for what may raise one of these exceptions because the code around it
/// expects that.
pub(super) fn walk_certain_stmt<'a, V: Visitor<'a>>(visitor: &mut V, statement: &'a Stmt, exceptions: &[&str]) {
    match statement {
        Stmt::Try(attempt) if handles(attempt, exceptions) => {
            attempt.handlers.iter().for_each(|handler| visitor.visit_except_handler(handler));
            visitor.visit_body(&attempt.orelse);
            visitor.visit_body(&attempt.finalbody);
        }
        Stmt::With(with) if suppresses(&with.items) => {}
        _ => walk_run_stmt(visitor, statement),
    }
}

/// Visits what an expression holds and a worker may run.
pub(super) fn walk_run_expr<'a, V: Visitor<'a>>(visitor: &mut V, expression: &'a Expr) {
    match expression {
        Expr::If(choice) => {
            visitor.visit_expr(&choice.test);
            let taken = truth(&choice.test);
            if taken != Truth::Never {
                visitor.visit_expr(&choice.body);
            }
            if taken != Truth::Always {
                visitor.visit_expr(&choice.orelse);
            }
        }
        Expr::BoolOp(operation) => {
            for value in &operation.values {
                visitor.visit_expr(value);
                if truth(value).decides(operation.op) {
                    break;
                }
            }
        }
        _ => walk_expr(visitor, expression),
    }
}

/// Whether no worker gets behind a statement.
fn ends(statement: &Stmt) -> bool {
    match statement {
        Stmt::Return(_) | Stmt::Raise(_) | Stmt::Break(_) | Stmt::Continue(_) => true,
        Stmt::If(inner) => {
            let mut taken = branches(inner).filter(|(_, taken)| *taken != Truth::Never);
            let mut complete = false;
            taken.all(|(body, taken)| {
                complete |= taken == Truth::Always;
                body.iter().any(ends)
            }) && complete
        }
        _ => false,
    }
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

/// `__name__ == "__main__"`, and its like.
fn asks_for_main(left: &Expr, operator: CmpOp, right: &Expr) -> Truth {
    let is_name = |side: &Expr| matches!(side, Expr::Name(name) if name.id.as_str() == "__name__");
    let is_text = |side: &Expr| matches!(side, Expr::StringLiteral(text) if text.value.to_str() == "__main__");
    let is_texts = |side: &Expr| match side {
        Expr::Tuple(tuple) => tuple.elts.iter().all(is_text),
        Expr::List(list) => list.elts.iter().all(is_text),
        Expr::Set(set) => set.elts.iter().all(is_text),
        _ => false,
    };
    let equal = is_name(left) && is_text(right) || is_text(left) && is_name(right);
    match operator {
        CmpOp::Eq if equal => Truth::Never,
        CmpOp::NotEq if equal => Truth::Always,
        CmpOp::In if is_name(left) && is_texts(right) => Truth::Never,
        CmpOp::NotIn if is_name(left) && is_texts(right) => Truth::Always,
        _ => Truth::Unknown,
    }
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
            (
                indoc! {"
                    if not TYPE_CHECKING: a
                    else: b
                "},
                vec![Always, Never],
            ),
            ("if not (__name__ != '__main__' or TYPE_CHECKING): a\n", vec![Never]),
            ("if False or typing.TYPE_CHECKING: a\n", vec![Never]),
            ("if x or not t.TYPE_CHECKING: a\n", vec![Always]),
            ("if __name__ != '__main__' and not TYPE_CHECKING: a\n", vec![Always]),
            ("if not (x and __name__ == '__main__'): a\n", vec![Always]),
            ("if __name__ in ('__main__', ): a\n", vec![Never]),
            ("if __name__ in ('__main__', 'x'): a\n", vec![Unknown]),
            ("if __name__ not in {'__main__'}: a\n", vec![Always]),
            ("if not PY2: a\n", vec![Version]),
        ] {
            let parsed = parse_module(text).unwrap();
            let Stmt::If(statement) = &parsed.suite()[0] else { panic!("{text}") };
            let found: Vec<_> = branches(statement).map(|(_, truth)| truth).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_stands_behind_the_end_of_a_body_is_not_reached() {
        for (text, expected) in [
            ("a\nb\n", 2),
            ("return\nb\n", 1),
            ("if __name__ != '__main__': raise ImportError\nb\n", 1),
            ("if TYPE_CHECKING: return\nb\n", 2),
            ("if x: return\nb\n", 2),
            ("if x: return\nelse: raise y\nb\n", 1),
            ("if x: return\nelif y: return\nb\n", 2),
            ("if TYPE_CHECKING: a\nelse:\n    a\n    return\nb\n", 1),
        ] {
            let parsed = ruff_python_parser::parse_unchecked(text, ruff_python_parser::Mode::Module.into());
            let ruff_python_ast::Mod::Module(module) = parsed.syntax() else { panic!("{text}") };
            assert_eq!(reached(&module.body).len(), expected, "{text}");
        }
    }
}
