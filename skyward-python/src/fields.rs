//! The fields of the class that a function's annotation says it returns.
//!
//! Uncertain classes count as any type: those with an unknown base, decorator or statement, and
//! those from which another class of the payload derives.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::visitor::{Visitor, walk_stmt};
use ruff_python_ast::{Decorator, Expr, Keyword, Operator, Stmt, StmtClassDef, StmtFunctionDef};
use ruff_python_parser::Mode;
use ruff_text_size::Ranged as _;

use super::bindings::{Binding, Bindings};
use super::function::Function;
use super::module::Module;
use super::tree::Tree;

/// What an annotation says of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Structure {
    /// Anything.
    Unknown,
    /// An instance of a class of the payload.
    Class(Class),
    /// A list or another series of values.
    List(Box<Structure>),
    /// A dictionary with values of this structure.
    Dict(Box<Structure>),
}

/// A class all of whose fields are known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Class {
    /// Its name.
    pub name: String,
    /// `path:line:column` of its name.
    pub place: String,
    /// The names and values of its fields, those of its bases first.
    pub fields: Vec<(String, Structure)>,
}

/// The kind of a class with fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dataclass,
    /// Classes of attrs.
    Attrs,
    TypedDict,
    NamedTuple,
    /// pydantic's `BaseModel`.
    Model,
    /// msgspec's `Struct`.
    Struct,
}

/// What the function returns; none if its annotation names no class of the payload.
pub(super) fn returned<'a>(
    modules: impl Iterator<Item = &'a Module> + Clone,
    function: &Function,
) -> Option<Structure> {
    let mut homes = modules.clone().filter(|module| module.path == function.location.path()).map(Module::bindings);
    let (bindings, definition) = homes.find_map(|bindings| match bindings.find(&function.name) {
        Some(Binding::Function(found)) if bindings.module.location(found.name.start()) == function.location => {
            Some((bindings, found))
        }
        _ => None,
    })?;
    let mut bases = Bases::default();
    // Most annotations name no class, and then nobody derives from it.
    structure_of(&bindings, &bases.0, definition)?;
    modules.for_each(|module| bases.visit_body(module.statements()));
    structure_of(&bindings, &bases.0, definition)
}

fn structure_of(bindings: &Bindings<'_>, bases: &BTreeSet<&str>, definition: &StmtFunctionDef) -> Option<Structure> {
    // Another decorator may give back something else than the function does.
    let kept = |decorator: &Decorator| last_name(&decorator.expression).is_some_and(|name| TRANSPARENT.contains(&name));
    if !definition.decorator_list.iter().all(kept) {
        return None;
    }
    let mut classes: BTreeMap<&str, Vec<&StmtClassDef>> = BTreeMap::new();
    for statement in bindings.module.statements() {
        if let Stmt::ClassDef(class) = statement {
            classes.entry(class.name.as_str()).or_default().push(class);
        }
    }
    let reader = Reader { bindings, classes, bases };
    Some(reader.structure(definition.returns.as_deref()?, &mut Within::default())).filter(|structure| structure.tells())
}

impl Structure {
    /// Whether there is a class in it.
    fn tells(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Class(_) => true,
            Self::List(inner) | Self::Dict(inner) => inner.tells(),
        }
    }
}

/// What an annotation stands in.
#[derive(Default)]
struct Within {
    classes: Vec<String>,
    /// The annotations around it, in all of these classes.
    annotations: usize,
}

struct Reader<'a> {
    bindings: &'a Bindings<'a>,
    /// The classes at the top level.
    classes: BTreeMap<&'a str, Vec<&'a StmtClassDef>>,
    /// What any class of the payload derives from.
    bases: &'a BTreeSet<&'a str>,
}

impl Reader<'_> {
    fn structure(&self, annotation: &Expr, within: &mut Within) -> Structure {
        if within.annotations == MOST_ANNOTATIONS {
            return Structure::Unknown;
        }
        within.annotations += 1;
        let structure = self.structure_within(annotation, within);
        within.annotations -= 1;
        structure
    }

    fn structure_within(&self, annotation: &Expr, within: &mut Within) -> Structure {
        match annotation {
            Expr::Name(name) => self.class(name.id.as_str(), within).map_or(Structure::Unknown, Structure::Class),
            Expr::StringLiteral(text) => match Tree::parse(text.value.to_str(), Mode::Expression).expression() {
                Some(annotation) => self.structure(annotation, within),
                None => Structure::Unknown,
            },
            Expr::BinOp(either) if either.op == Operator::BitOr => match (&*either.left, &*either.right) {
                (Expr::NoneLiteral(_), other) | (other, Expr::NoneLiteral(_)) => self.structure(other, within),
                _ => Structure::Unknown,
            },
            Expr::Subscript(subscript) => {
                let arguments = match &*subscript.slice {
                    Expr::Tuple(tuple) => tuple.elts.iter().collect(),
                    one => vec![one],
                };
                match (last_name(&subscript.value).unwrap_or_default(), arguments.as_slice()) {
                    ("Optional" | "Required" | "NotRequired" | "ReadOnly", [inner]) => self.structure(inner, within),
                    ("Annotated", [inner, ..]) => self.structure(inner, within),
                    ("Generator", [item, ..]) => Structure::List(Box::new(self.structure(item, within))),
                    ("tuple" | "Tuple", [item, Expr::EllipsisLiteral(_)]) => {
                        Structure::List(Box::new(self.structure(item, within)))
                    }
                    (name, [item]) if LISTS.contains(&name) => Structure::List(Box::new(self.structure(item, within))),
                    (name, [_, value]) if DICTS.contains(&name) => {
                        Structure::Dict(Box::new(self.structure(value, within)))
                    }
                    _ => Structure::Unknown,
                }
            }
            _ => Structure::Unknown,
        }
    }

    fn class(&self, name: &str, within: &mut Within) -> Option<Class> {
        // An instance of a class that derives from it may have more fields.
        if self.bases.contains(name) || within.classes.len() >= DEEPEST {
            return None;
        }
        let class = self.definition(name)?;
        let (_, fields) = self.fields(class, within)?;
        Some(Class { name: name.to_owned(), place: self.bindings.module.locate(class.name.start()), fields })
    }

    /// The class of this name, which is bound once, at the top level.
    fn definition(&self, name: &str) -> Option<&StmtClassDef> {
        let Some(Binding::Other { at, .. }) = self.bindings.find(name) else { return None };
        match self.classes.get(name)?.as_slice() {
            [class] if class.range() == at => Some(class),
            _ => None,
        }
    }

    /// All fields, those of the bases first.
    fn fields(&self, class: &StmtClassDef, within: &mut Within) -> Option<(Kind, Vec<(String, Structure)>)> {
        let name = class.name.to_string();
        if within.classes.len() == MOST_CLASSES || within.classes.contains(&name) {
            return None;
        }
        within.classes.push(name);
        let found = self.fields_within(class, within);
        within.classes.pop();
        found
    }

    fn fields_within(&self, class: &StmtClassDef, within: &mut Within) -> Option<(Kind, Vec<(String, Structure)>)> {
        let mut kind = None;
        for decorator in &class.decorator_list {
            if chooses_fields(&decorator.expression) {
                return None;
            }
            match last_name(&decorator.expression)? {
                "dataclass" => kind = Some(Kind::Dataclass),
                "define" | "frozen" | "mutable" => kind = Some(Kind::Attrs),
                "final" | "total_ordering" | "runtime_checkable" => {}
                _ => return None,
            }
        }
        let is_decorated = kind.is_some();
        let mut fields: Vec<(String, Structure)> = Vec::new();
        for base in class.bases() {
            let derived = match last_name(base)? {
                "object" | "ABC" | "Generic" => continue,
                "TypedDict" => Kind::TypedDict,
                "NamedTuple" => Kind::NamedTuple,
                "BaseModel" => Kind::Model,
                "Struct" => Kind::Struct,
                name => {
                    let (derived, more) = self.fields(self.definition(name)?, within)?;
                    more.into_iter().for_each(|(name, structure)| put(&mut fields, name, structure));
                    derived
                }
            };
            // A plain class below a dataclass has the fields of that, and below others it is of
            // their kind.
            kind = kind.or(Some(derived));
        }
        let kind = kind?;
        if !class.keywords().iter().all(|keyword| is_harmless(kind, keyword)) {
            return None;
        }
        let adds = is_decorated || !matches!(kind, Kind::Dataclass | Kind::Attrs);
        for statement in &class.body {
            match statement {
                Stmt::AnnAssign(assign) => {
                    let Expr::Name(name) = &*assign.target else { return None };
                    if !assign.value.as_deref().is_none_or(|value| keeps_name(kind, value)) {
                        return None;
                    }
                    let name = name.id.as_str();
                    if kind == Kind::Model && DUMPS.contains(&name) {
                        return None;
                    }
                    if !adds || is_no_field(kind, &assign.annotation) || (kind == Kind::Model && name.starts_with('_'))
                    {
                        continue;
                    }
                    put(&mut fields, name.to_owned(), self.structure(&assign.annotation, within));
                }
                Stmt::Expr(_) | Stmt::Pass(_) => {}
                Stmt::FunctionDef(method) => {
                    let serialises = |decorator: &Decorator| {
                        last_name(&decorator.expression).is_none_or(|name| SERIALISERS.contains(&name))
                    };
                    if method.decorator_list.iter().any(serialises)
                        || (kind == Kind::Model && DUMPS.contains(&method.name.as_str()))
                    {
                        return None;
                    }
                }
                // What `attrs.field()` gives is a field without an annotation, and then what has
                // but an annotation is none.
                Stmt::Assign(assign) if kind == Kind::Attrs && !is_plain(&assign.value) => return None,
                // Settings of a model may rename its fields, and so may a class in it.
                Stmt::Assign(_) | Stmt::ClassDef(_) if kind != Kind::Model => {}
                _ => return None,
            }
        }
        Some((kind, fields))
    }
}

/// The names of all bases in modules.
#[derive(Default)]
struct Bases<'a>(BTreeSet<&'a str>);

impl<'a> Visitor<'a> for Bases<'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if let Stmt::ClassDef(class) = statement {
            self.0.extend(class.bases().iter().filter_map(|base| last_name(base)));
        }
        walk_stmt(self, statement);
    }
}

fn put(fields: &mut Vec<(String, Structure)>, name: String, structure: Structure) {
    match fields.iter_mut().find(|(known, _)| *known == name) {
        Some(known) => known.1 = structure,
        None => fields.push((name, structure)),
    }
}

/// `c` of `a.b.c`, of `c[…]` and of `c(…)`.
fn last_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Name(name) => Some(name.id.as_str()),
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        Expr::Subscript(subscript) => last_name(&subscript.value),
        Expr::Call(call) => last_name(&call.func),
        _ => None,
    }
}

/// `ClassVar[…]`, and in dataclasses `InitVar[…]` and `KW_ONLY`, also in quotes.
fn is_no_field(kind: Kind, annotation: &Expr) -> bool {
    let names: &[&str] = if kind == Kind::Attrs { &["ClassVar"] } else { &["ClassVar", "InitVar", "KW_ONLY"] };
    match annotation {
        Expr::StringLiteral(text) => names.iter().any(|name| text.value.to_str().contains(name)),
        other => last_name(other).is_some_and(|name| names.contains(&name)),
    }
}

/// Whether an argument of a class's decorator decides which fields the class has, or may do so.
fn chooses_fields(decorator: &Expr) -> bool {
    let Expr::Call(call) = decorator else { return false };
    let chooses = |keyword: &Keyword| keyword.arg.as_ref().is_none_or(|name| CHOOSERS.contains(&name.as_str()));
    call.arguments.keywords.iter().any(chooses)
}

/// Whether it is surely not what `attrs.field()` gives, nor has that in it to be unpacked.
fn is_plain(value: &Expr) -> bool {
    match value {
        Expr::Tuple(tuple) => tuple.elts.iter().all(is_plain),
        Expr::List(list) => list.elts.iter().all(is_plain),
        Expr::UnaryOp(operation) => is_plain(&operation.operand),
        Expr::FString(_) | Expr::Lambda(_) | Expr::Dict(_) => true,
        other => other.is_literal_expr(),
    }
}

/// Whether a class's keyword leaves names and number of its fields alone.
fn is_harmless(kind: Kind, keyword: &Keyword) -> bool {
    let Some(name) = keyword.arg.as_ref() else { return false };
    match kind {
        Kind::TypedDict => name.as_str() == "total",
        Kind::Struct => !["rename", "tag", "tag_field", "metaclass"].contains(&name.as_str()),
        _ => false,
    }
}

/// Whether a field with this default is sent, under its own name.
fn keeps_name(kind: Kind, value: &Expr) -> bool {
    let Expr::Call(call) = value else { return true };
    let refused: &[&str] = match kind {
        Kind::Model => &["alias", "serialization_alias", "exclude", "exclude_if"],
        Kind::Struct => &["name"],
        _ => &[],
    };
    call.arguments
        .keywords
        .iter()
        .all(|keyword| keyword.arg.as_ref().is_some_and(|name| !refused.contains(&name.as_str())))
}

/// Decorators that give back what the function does.
const TRANSPARENT: [&str; 9] =
    ["compute", "function", "stdout", "stderr", "silent", "cache", "lru_cache", "no_grad", "inference_mode"];
const LISTS: [&str; 14] = [
    "list",
    "List",
    "Sequence",
    "MutableSequence",
    "Iterable",
    "Iterator",
    "Collection",
    "set",
    "Set",
    "frozenset",
    "FrozenSet",
    "AbstractSet",
    "deque",
    "Deque",
];
const DICTS: [&str; 7] = ["dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict", "DefaultDict"];
/// Decorators of methods by which a model is sent otherwise.
const SERIALISERS: [&str; 3] = ["computed_field", "model_serializer", "field_serializer"];
/// Settings by which a model changes how it is sent.
const DUMPS: [&str; 2] = ["model_config", "model_dump"];
/// Arguments of attrs' decorators that say which fields there are.
const CHOOSERS: [&str; 3] = ["these", "auto_attribs", "field_transformer"];
/// Classes in classes, at most.
const DEEPEST: usize = 6;
/// The same with their bases.
const MOST_CLASSES: usize = 32;
/// Annotations in annotations, at most; those of a result that Rust reads are nested a few levels
/// deep.
const MOST_ANNOTATIONS: usize = 64;

#[cfg(test)]
mod tests;
