//! The `#[skyward::compute]` attribute.

mod args;
mod check;
mod compute;
mod diagnostic;
mod expand;
mod fit;
mod signature;
mod surroundings;

use proc_macro::TokenStream;

/// The generated function takes the arguments and returns a `PendingCompute<T>`, a call that does
/// not run yet. Dispatch it with `.run(&pool)`, `.broadcast(&pool)` or a similar method. Skyward
/// passes arguments by name.
///
/// # Forms
///
/// * **Python files**: `#[compute(python = "payloads/train.py")] fn train(epochs: u32) -> Report;`.
///   The path is relative to the folder of the crate's `Cargo.toml`. The files become part of the
///   binary, and a change to them rebuilds it.
/// * **A Python body**: one string literal. The arguments are in scope. Tracebacks show the line
///   numbers of the Rust file, unless the literal has `\n` escapes.
/// * **A Rust body** that builds and returns a `Payload<T>` when the function is called.
///
/// # Options
///
/// * `python = "…"`: a Python file, or a folder with all of its `.py` files. The files of a folder
///   import each other as a package with the folder's name. Cargo notices a new file in the folder
///   only when another file has changed.
/// * `entry = "…"`: the Python function; by default, the one with the name of the Rust function.
/// * `main = "…"`: the file with the entry, in a folder; by default `__init__.py`.
/// * `payload = …`: the name of a new type that stands for the payload. It implements `ComputeFn`,
///   and declares the payload to a pool before the first call.
/// * `unchecked`: does not compare the Rust signature with the Python function, for entries whose
///   decorators pass arguments of their own.
/// * `crate = …`: the path of the facade, if it is not `::skyward`.
///
/// # Arguments and results
///
/// Arguments are of any type that implements `serde::Serialize`, owned or borrowed. For an `Option`
/// argument that is `None`, the Python parameter takes its default if it has one, and Python's
/// `None` otherwise. Parameters with defaults need no argument.
///
/// The result is any type that implements `serde::Deserialize` and borrows nothing. A Python
/// generator is declared as `-> Streaming<T>`.
///
/// # What is checked when the crate compiles
///
/// * The files exist, and are valid for the oldest Python that `requires-python` allows, or else
///   for 3.10.
/// * The entry exists, and the arguments fit its parameters by name, and by type where both types
///   are plain.
/// * Generators are declared as streams, and a stream is of a function that yields, or that may return
///   an iterator.
/// * A payload of one file imports nothing by a relative name, and no file that lies beside it.
/// * A body uses only names that are defined.
/// * The metadata (PEP 723) of the main file is well-formed.
/// * Names of the package `skyward` exist, and its functions take the keywords that they get, where
///   the payload imports the package plainly. Code that no worker runs is not checked, such as what
///   stands below `if __name__ == "__main__":`.
///
/// The checks need no Python interpreter.
#[proc_macro_attribute]
pub fn compute(options: TokenStream, item: TokenStream) -> TokenStream {
    compute::expand(options.into(), item.into()).into()
}
