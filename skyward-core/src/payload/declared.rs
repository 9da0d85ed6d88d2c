//! How a declared payload produces its result, for `#[skyward::compute]` to compare with the Python
//! function.
//!
//! The macro sees only the names of types, which may be aliases, but the compiler knows the types.
//! For a constant of [`Declared`], the compiler prefers the inherent one to that of the trait
//! [`DeclaredWhole`]. The constants need no trait bound, so an invalid result type causes a single
//! compile error, which comes from [`Output`](super::Output).

use std::marker::PhantomData;

use super::Streaming;

/// A declaration with this result: `Declared::<T>::KIND` is [`Items`] for a stream, and [`Whole`]
/// for anything else.
#[derive(Debug)]
pub struct Declared<T>(PhantomData<fn() -> T>);

/// The result is what the Python function yields.
#[derive(Debug)]
pub struct Items;

/// The result is what the Python function returns.
#[derive(Debug)]
pub struct Whole;

/// The result is `()`, or the Python function produces it without `return`.
#[derive(Debug)]
pub struct Nothing;

/// The result may be `None`.
#[derive(Debug)]
pub struct Optional;

/// The Python function must return the result.
#[derive(Debug)]
pub struct Something;

/// The constants of [`Declared`] for all types without inherent ones: `KIND` for all types but
/// streams, and `REST` for all types but streams, `()` and `Option`.
pub trait DeclaredWhole {
    /// How the function produces the result.
    const KIND: Whole = Whole;
    /// Whether the function must return the result.
    const REST: Something = Something;
}

impl<T> Declared<Streaming<T>> {
    /// How the function produces the result.
    pub const KIND: Items = Items;
    /// The function produces items with `yield`, and needs no `return`.
    pub const REST: Nothing = Nothing;
}

impl Declared<()> {
    /// The function needs no `return`.
    pub const REST: Nothing = Nothing;
}

impl<T> Declared<Option<T>> {
    /// The function may end without `return`, which produces `None`.
    pub const REST: Optional = Optional;
}

impl<T> DeclaredWhole for Declared<T> {}
