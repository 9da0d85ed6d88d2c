//! Whether a plain Rust type and a plain Python annotation can fit each other.
//!
//! Only types that never fit are refused. As for type checkers, a `float` may be an `int`, and an
//! `int` a `bool`.

use std::collections::BTreeSet;

use quote::ToTokens as _;
use skyward_python::Scalar;
use syn::Type;

use crate::signature::{inner, last_segment};

/// A Rust type whose Python counterpart is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rust {
    Unit,
    Bool,
    Integer,
    Float,
    Text,
    Bytes,
}

/// What an argument or result is when it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) rust: Rust,
    /// It is an `Option`.
    pub(crate) optional: bool,
}

impl Plain {
    /// None for types whose Python counterpart is unknown: a struct, a generic parameter, an alias.
    pub(crate) fn of(ty: &Type) -> Option<Self> {
        match last_segment(ty) {
            Some(segment) if segment.ident == "Option" => {
                // Bytes in an `Option` may travel as a list.
                let rust = Rust::of(inner(ty)?).filter(|rust| *rust != Rust::Bytes)?;
                Some(Self { rust, optional: true })
            }
            _ => Some(Self { rust: Rust::of(ty)?, optional: false }),
        }
    }

    /// Whether Python takes it for one of these types.
    pub(crate) fn can_be_passed(self, scalars: &BTreeSet<Scalar>) -> bool {
        // None may be left to a default, or be all that is ever passed.
        self.optional && scalars.contains(&Scalar::None) || values(scalars).contains(&self.rust.scalar())
    }

    /// Whether a value of one of these types can be read as it.
    pub(crate) fn can_be_read(self, scalars: &BTreeSet<Scalar>) -> bool {
        let values = values(scalars);
        self.optional && scalars.contains(&Scalar::None)
            || values.contains(&self.rust.scalar())
            || self.rust == Rust::Float && values.contains(&Scalar::Int)
    }
}

/// What a value may be that is annotated so.
fn values(scalars: &BTreeSet<Scalar>) -> BTreeSet<Scalar> {
    let mut values = scalars.clone();
    for (wide, narrow) in [(Scalar::Float, Scalar::Int), (Scalar::Int, Scalar::Bool)] {
        if values.contains(&wide) {
            values.insert(narrow);
        }
    }
    values
}

impl Rust {
    fn of(ty: &Type) -> Option<Self> {
        match ty {
            Type::Group(group) => Self::of(&group.elem),
            Type::Paren(paren) => Self::of(&paren.elem),
            Type::Tuple(tuple) if tuple.elems.is_empty() => Some(Self::Unit),
            Type::Reference(reference) => match &*reference.elem {
                Type::Slice(slice) => is_byte(&slice.elem).then_some(Self::Bytes),
                referred => Self::of(referred),
            },
            Type::Path(path) if path.qself.is_none() => {
                let ident = path.path.get_ident();
                match ident.map(ToString::to_string).as_deref() {
                    Some("bool") => Some(Self::Bool),
                    Some("f32" | "f64") => Some(Self::Float),
                    Some("str" | "String" | "char") => Some(Self::Text),
                    Some(name) => INTEGERS.contains(&name).then_some(Self::Integer),
                    None => {
                        let is_vec = last_segment(ty).is_some_and(|segment| segment.ident == "Vec");
                        (is_vec && inner(ty).is_some_and(is_byte)).then_some(Self::Bytes)
                    }
                }
            }
            _ => None,
        }
    }

    /// Its counterpart in Python.
    pub(crate) fn scalar(self) -> Scalar {
        match self {
            Self::Unit => Scalar::None,
            Self::Bool => Scalar::Bool,
            Self::Integer => Scalar::Int,
            Self::Float => Scalar::Float,
            Self::Text => Scalar::Str,
            Self::Bytes => Scalar::Bytes,
        }
    }
}

/// The Rust type for a type of Python, if there is one.
pub(crate) fn written(scalar: Scalar) -> Option<&'static str> {
    Some(match scalar {
        Scalar::None => "()",
        Scalar::Bool => "bool",
        Scalar::Int => "i64",
        Scalar::Float => "f64",
        Scalar::Str => "String",
        Scalar::Bytes => "Vec<u8>",
        _ => return None,
    })
}

/// The Rust type for what an annotation allows: `Option<f64>` for `float | None`.
pub(crate) fn rust_type(scalars: &BTreeSet<Scalar>) -> Option<String> {
    let optional = scalars.contains(&Scalar::None);
    let mut others = scalars.iter().filter(|scalar| **scalar != Scalar::None);
    match (others.next(), others.next()) {
        (None, _) => written(Scalar::None).map(str::to_owned),
        (Some(only), None) if optional => written(*only).map(|ty| format!("Option<{ty}>")),
        (Some(only), None) => written(*only).map(str::to_owned),
        _ => None,
    }
}

fn is_byte(ty: &Type) -> bool {
    ty.to_token_stream().to_string() == "u8"
}

const INTEGERS: [&str; 12] = ["i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize"];

#[cfg(test)]
mod tests {
    use super::*;
    use Scalar::{Bool, Bytes, Float, Int, None as Nothing, Str};

    fn plain(ty: &str) -> Option<Plain> {
        Plain::of(&syn::parse_str(ty).unwrap())
    }

    #[test]
    fn arguments_fit_where_python_takes_them() {
        let all = [Nothing, Bool, Int, Float, Str, Bytes];
        for (ty, fitting) in [
            ("u32", vec![Int, Float]),
            ("&i8", vec![Int, Float]),
            ("f64", vec![Float]),
            ("bool", vec![Bool, Int, Float]),
            ("&'static str", vec![Str]),
            ("String", vec![Str]),
            ("char", vec![Str]),
            ("&[u8]", vec![Bytes]),
            ("Vec<u8>", vec![Bytes]),
            ("Option<f32>", vec![Nothing, Float]),
            ("Option<&str>", vec![Nothing, Str]),
            ("std::option::Option<u8>", vec![Nothing, Int, Float]),
            ("()", vec![Nothing]),
        ] {
            let plain = plain(ty).unwrap();
            let found: Vec<_> = all.into_iter().filter(|it| plain.can_be_passed(&BTreeSet::from([*it]))).collect();
            assert_eq!(found, fitting, "{ty}");
        }
        assert!(plain("u8").unwrap().can_be_passed(&BTreeSet::from([Str, Int])), "one of them fits");
    }

    #[test]
    fn results_fit_where_rust_can_read_them() {
        let all = [Nothing, Bool, Int, Float, Str, Bytes];
        for (ty, fitting) in [
            ("u32", vec![Int, Float]),
            ("f64", vec![Int, Float]),
            ("bool", vec![Bool, Int, Float]),
            ("String", vec![Str]),
            ("Vec<u8>", vec![Bytes]),
            ("Option<i64>", vec![Nothing, Int, Float]),
            ("()", vec![Nothing]),
        ] {
            let plain = plain(ty).unwrap();
            let found: Vec<_> = all.into_iter().filter(|it| plain.can_be_read(&BTreeSet::from([*it]))).collect();
            assert_eq!(found, fitting, "{ty}");
        }
    }

    #[test]
    fn there_is_a_rust_type_for_one_scalar() {
        let set = |scalars: &[Scalar]| rust_type(&scalars.iter().copied().collect());
        assert_eq!(set(&[Float, Nothing]).as_deref(), Some("Option<f64>"));
        assert_eq!(set(&[Nothing]).as_deref(), Some("()"));
        assert_eq!(set(&[Int, Str]), None);
    }

    #[test]
    fn other_types_are_not_known() {
        for ty in
            ["Report", "T", "Vec<u32>", "Option<Vec<u8>>", "mine::f64", "Cow<'_, str>", "[u8; 3]", "&[u32]", "(u8,)"]
        {
            assert_eq!(plain(ty), None, "{ty}");
        }
    }
}
