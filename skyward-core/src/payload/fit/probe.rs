//! A deserializer without a value, which records the fields that a type requests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};

use super::access::{Entry, Fields, Items, One};
use super::samples::{ANY, Any, INTS, MOST, TEXTS};
use super::{Class, Structure};
use crate::payload::value::empty_tensor;

/// A field that a type requires and the class does not have.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) class: &'static Class,
    pub(super) rust_type: &'static str,
    pub(super) field: &'static str,
    pub(super) path: String,
}

/// The first field that the type requires and a class of the structure does not have.
pub(super) fn missing<T: DeserializeOwned>(structure: Structure) -> Option<Missing> {
    let known = Known::default();
    for _ in 0..MOST_TRIES {
        let probe = Probe { structure, path: String::new(), known: &known };
        // The code of a type may panic for values that it never meets in practice.
        let tried = catch_unwind(AssertUnwindSafe(|| T::deserialize(probe).map(drop))).ok()?;
        match tried.err()? {
            Fault::Missing { field, at: Some(At { class: Some((class, rust_type)), path }) } => {
                return Some(Missing { class, rust_type, field, path });
            }
            Fault::Missing { field, at: Some(At { class: None, path }) } => known.add_field(path, field)?,
            Fault::Rejected { path: Some(path) } => known.next_sample(path)?,
            Fault::Missing { at: None, .. } | Fault::Rejected { path: None } | Fault::GaveUp => return None,
        }
    }
    None
}

/// What earlier tries have found out.
#[derive(Default)]
pub(super) struct Known {
    /// By path: the fields that a struct without a Python class requires.
    fields: RefCell<BTreeMap<String, Vec<&'static str>>>,
    /// By path: the index of the next stand-in.
    samples: RefCell<BTreeMap<String, usize>>,
}

impl Known {
    /// Adds a field; `None` if it is known already.
    fn add_field(&self, path: String, field: &'static str) -> Option<()> {
        let mut fields = self.fields.borrow_mut();
        let there = fields.entry(path).or_default();
        if there.contains(&field) {
            return None;
        }
        there.push(field);
        Some(())
    }

    /// Moves on to the next stand-in at this path; `None` if there are no more.
    fn next_sample(&self, path: String) -> Option<()> {
        let mut samples = self.samples.borrow_mut();
        let sample = samples.entry(path).or_default();
        *sample += 1;
        (*sample < MOST).then_some(())
    }

    fn sample(&self, path: &str) -> usize {
        self.samples.borrow().get(path).copied().unwrap_or(0)
    }

    fn fields(&self, path: &str) -> Vec<(&'static str, Structure)> {
        let names = self.fields.borrow().get(path).cloned().unwrap_or_default();
        names.into_iter().map(|name| (name, Structure::Unknown)).collect()
    }
}

/// Why a try ended.
#[derive(Debug)]
pub(super) enum Fault {
    Missing {
        field: &'static str,
        at: Option<At>,
    },
    Rejected {
        path: Option<String>,
    },
    /// The Rust type and the Python structure are of different kinds, or cannot be compared.
    GaveUp,
}

/// The place of a struct, and the class that it is compared with.
#[derive(Debug)]
pub(super) struct At {
    class: Option<(&'static Class, &'static str)>,
    path: String,
}

impl Fault {
    /// Adds the place of the rejected value, unless an inner place is known. A missing field
    /// without a struct of the probe was missing inside the value, for example in a text that a
    /// type parses, so the value counts as rejected.
    pub(super) fn rejected_at(self, place: &str) -> Self {
        match self {
            Self::Rejected { path: None } | Self::Missing { at: None, .. } => {
                Self::Rejected { path: Some(place.to_owned()) }
            }
            other => other,
        }
    }

    fn missing_at(self, class: Option<(&'static Class, &'static str)>, path: &str) -> Self {
        match self {
            Self::Missing { field, at: None } => Self::Missing { field, at: Some(At { class, path: path.to_owned() }) },
            other => other,
        }
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Rejected { path: None }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing { field, at: None }
    }

    /// Gives up, because Python may omit the unknown field from some values.
    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self::GaveUp
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stand-in for a value was not accepted")
    }
}

impl std::error::Error for Fault {}

/// The stand-in for one value.
pub(super) struct Probe<'k> {
    structure: Structure,
    pub(super) path: String,
    known: &'k Known,
}

impl<'k> Probe<'k> {
    pub(super) fn inner(&self, segment: fmt::Arguments<'_>, structure: Structure) -> Self {
        Self { structure, path: format!("{}{segment}", self.path), known: self.known }
    }

    fn sample<'s, S>(&self, samples: &'s [S]) -> Result<&'s S, Fault> {
        samples.get(self.known.sample(&self.path)).ok_or(Fault::GaveUp)
    }

    fn int(&self) -> Result<u8, Fault> {
        self.sample(INTS).copied()
    }

    fn is_deep(&self) -> bool {
        self.path.matches(['.', '[']).count() > DEEPEST
    }

    fn fields(self, class: Option<(&'static Class, &'static str)>) -> Fields<'k> {
        let fields = match class {
            Some((class, _)) => class.fields.to_vec(),
            None => self.known.fields(&self.path),
        };
        Fields { probe: self, fields, next: 0 }
    }

    /// Visits a struct with the fields of its class, or with the fields that the type has requested
    /// so far.
    pub(super) fn named<'de, V: Visitor<'de>>(self, rust_type: &'static str, visitor: V) -> Result<V::Value, Fault> {
        let class = match self.structure {
            Structure::Class(class) => Some((class, rust_type)),
            Structure::Unknown if !self.is_deep() => None,
            _ => return Err(Fault::GaveUp),
        };
        let path = self.path.clone();
        visitor.visit_map(self.fields(class)).map_err(|fault| fault.missing_at(class, &path).rejected_at(&path))
    }

    fn items<'de, V: Visitor<'de>>(self, length: usize, structure: Structure, visitor: V) -> Result<V::Value, Fault> {
        let path = self.path.clone();
        visitor.visit_seq(Items { probe: self, structure, next: 0, length }).map_err(|fault| fault.rejected_at(&path))
    }

    fn scalar<T>(&self, visit: impl FnOnce(&Self) -> Result<T, Fault>) -> Result<T, Fault> {
        visit(self).map_err(|fault| fault.rejected_at(&self.path))
    }
}

macro_rules! ints {
    ($($method:ident $visit:ident),+ $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.scalar(|probe| visitor.$visit(probe.int()?.into()))
        }
    )+};
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Fault;

    ints! {
        deserialize_u16 visit_u16,
        deserialize_u32 visit_u32,
        deserialize_u64 visit_u64,
        deserialize_u128 visit_u128,
        deserialize_i16 visit_i16,
        deserialize_i32 visit_i32,
        deserialize_i64 visit_i64,
        deserialize_i128 visit_i128,
        deserialize_f32 visit_f32,
        deserialize_f64 visit_f64,
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.scalar(|probe| visitor.visit_u8(probe.int()?))
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.scalar(|probe| visitor.visit_i8(probe.int()?.cast_signed()))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.scalar(|_| visitor.visit_bool(false))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.scalar(|_| visitor.visit_char('a'))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.scalar(|probe| visitor.visit_str(probe.sample(TEXTS)?))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.scalar(|_| visitor.visit_bytes(&[]))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.scalar(|_| visitor.visit_unit())
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if !matches!(self.structure, Structure::Unknown) || self.is_deep() {
            return Err(Fault::GaveUp);
        }
        match self.sample(ANY)? {
            Any::Unit => self.deserialize_unit(visitor),
            Any::Int => self.scalar(|_| visitor.visit_u64(1)),
            Any::Float => self.scalar(|_| visitor.visit_f64(1.0)),
            Any::Text => self.scalar(|_| visitor.visit_str("a")),
            Any::Bool => self.deserialize_bool(visitor),
            Any::Map => self.named("", visitor),
            Any::Seq => self.items(0, Structure::Unknown, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.structure {
            Structure::Unknown => self.scalar(|_| visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    /// A sequence has one item if the Python structure describes the items, and is empty otherwise.
    /// A type that rejects an empty sequence gets one item in the next try.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.structure {
            Structure::List(inner) => self.items(1, *inner, visitor),
            Structure::Unknown if !self.is_deep() => {
                let length = self.known.sample(&self.path).min(1);
                self.items(length, Structure::Unknown, visitor)
            }
            _ => Err(Fault::GaveUp),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        match self.structure {
            Structure::List(inner) => self.items(length, *inner, visitor),
            // A namedtuple is read by position.
            Structure::Class(class) if class.fields.len() != length => Err(Fault::GaveUp),
            Structure::Dict(_) => Err(Fault::GaveUp),
            _ if self.is_deep() => Err(Fault::GaveUp),
            _ => self.items(length, Structure::Unknown, visitor),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match empty_tensor(name, visitor) {
            Ok(tensor) => tensor,
            Err(visitor) => self.deserialize_tuple(length, visitor),
        }
    }

    /// A dict with any keys; or a struct with flattened fields, whose required fields cannot be
    /// determined.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let path = self.path.clone();
        match self.structure {
            Structure::Dict(inner) => {
                let entry = Entry { probe: self, structure: *inner, given: false };
                visitor.visit_map(entry).map_err(|fault| fault.rejected_at(&path))
            }
            Structure::Unknown => self.named("", visitor),
            _ => Err(Fault::GaveUp),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.named(name, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if !matches!(self.structure, Structure::Unknown) || self.is_deep() {
            return Err(Fault::GaveUp);
        }
        let (variant, path) = (*self.sample(variants)?, self.path.clone());
        visitor.visit_enum(One { probe: self, variant }).map_err(|fault| fault.rejected_at(&path))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }
}

/// The most tries. A type requires some fields, each of which may reject some stand-ins.
const MOST_TRIES: usize = 1000;
/// The deepest nesting. Only a type that contains itself goes deeper.
const DEEPEST: usize = 24;
