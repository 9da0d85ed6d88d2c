//! How the result of a declaration comes, for `#[skyward::compute]` to compare with the Python function.
//!
//! The macro sees names of types, which may be aliases; the compiler knows the types. Of two constants of one name it takes the
//! inherent one, where there is one. No trait is asked for, so a type that cannot be a result is told once, by [`Output`](super::Output).

use std::marker::PhantomData;

use super::Streaming;

/// A declaration with this result: `Declared::<T>::KIND` is [`Items`] for a stream, and [`Whole`] for anything else.
#[derive(Debug)]
pub struct Declared<T>(PhantomData<fn() -> T>);

/// The result is what the Python function yields.
#[derive(Debug)]
pub struct Items;

/// The result is what the Python function returns.
#[derive(Debug)]
pub struct Whole;

/// The result is `()`, or comes otherwise than by `return`.
#[derive(Debug)]
pub struct Nothing;

/// The result may be None.
#[derive(Debug)]
pub struct Optional;

/// The result is what a `return` gives.
#[derive(Debug)]
pub struct Something;

/// What [`Declared`] says of anything that is no stream, and of anything but `()` and `Option`.
pub trait DeclaredWhole {
    /// How the result comes.
    const KIND: Whole = Whole;
    /// Whether there is one without a `return`.
    const REST: Something = Something;
}

impl<T> Declared<Streaming<T>> {
    /// How the result comes.
    pub const KIND: Items = Items;
    /// Its items come by `yield`.
    pub const REST: Nothing = Nothing;
}

impl Declared<()> {
    /// There is none.
    pub const REST: Nothing = Nothing;
}

impl<T> Declared<Option<T>> {
    /// None is one.
    pub const REST: Optional = Optional;
}

impl<T> DeclaredWhole for Declared<T> {}
