//! The `#[skyward::compute]` attribute.

mod args;
mod check;
mod compute;
mod diagnostic;
mod expand;
mod fit;
mod python;
mod signature;
mod source;

use proc_macro::TokenStream;

/// Declares a Python payload as a Rust function.
///
/// The function that comes of it takes the arguments and returns a `PendingCompute<T>`: a call that runs nothing yet. Dispatch it with `.run(&pool)`,
/// `.broadcast(&pool)` and their like. Arguments travel by name.
///
/// # Forms
///
/// * **Python files**: `#[compute(python = "payloads/train.py")] fn train(epochs: u32) -> Report;`. The path is relative to the folder of the crate's
///   `Cargo.toml`. The files become part of the binary, and a change to them rebuilds it.
/// * **A Python body**: one string literal. The arguments are in scope. Its lines have their numbers of the Rust file in tracebacks, unless the literal has `\n` escapes.
/// * **A Rust body** that returns `Payload<T>`, and puts it together when the function is called.
///
/// # Options
///
/// * `python = "…"`: a Python file, or a folder, of which all `.py` files are taken. Inside a folder the files import each other as a package of the folder's name.
///   A file that is new in the folder is seen once any other is changed.
/// * `entry = "…"`: the Python function; by default that of the Rust function's name.
/// * `main = "…"`: the file of the folder that has the entry; by default `__init__.py`.
/// * `payload = …`: the name of a type that is made to stand for the payload; it implements `ComputeFn`, and tells a pool of the payload before it is called.
/// * `unchecked`: the Rust signature is not compared with the Python function, for entries whose decorators pass arguments of their own.
/// * `crate = …`: the path of the facade, if it is not `::skyward`.
///
/// # Arguments and results
///
/// Arguments are of any type that implements `serde::Serialize`, owned or borrowed. An `Option` argument that is `None` is left to the default of the Python
/// parameter if it has one, and is Python's `None` otherwise. Parameters with defaults need no argument.
///
/// The result is any type that implements `serde::Deserialize` and borrows nothing. A Python generator is declared as `-> Streaming<T>`.
///
/// # What is checked when the crate compiles
///
/// The files are there and are Python, of the oldest version that `requires-python` allows, or else of 3.10; the entry is there; the arguments fit its parameters by name, and by
/// type where both are plain; generators are declared as such; names that a body uses are defined; the metadata (PEP 723) of the main file is well-formed; what is named of `skyward`,
/// where that is imported plainly, is there, and its functions take the keywords that they are given. No Python interpreter is needed for that.
#[proc_macro_attribute]
pub fn compute(options: TokenStream, item: TokenStream) -> TokenStream {
    compute::expand(options.into(), item.into()).into()
}
