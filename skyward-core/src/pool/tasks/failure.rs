//! Turns the failures that workers report into errors.

use std::sync::Arc;

use super::missing::hint;
use crate::error::{Error, ErrorKind, Exception};
use crate::ids::{NodeIndex, Rank};
use crate::payload::Source;
use crate::worker::message::Failure;

/// The error of a task that failed, as its worker reports it. `source` is that of its payload, and
/// `image` has the requirements of the image.
pub(crate) fn task_error(
    failure: &Failure,
    source: Option<&Source>,
    image: &[String],
    node: NodeIndex,
    rank: Rank,
) -> Error {
    let exception = || Exception {
        type_name: failure.qualified_type(),
        message: failure.message.clone(),
        traceback: failure.traceback.clone(),
        node,
        rank,
    };
    let at = failure.path.as_deref().filter(|path| !path.is_empty());
    match failure.kind.as_str() {
        "import" => {
            let error = Error::raised(exception());
            match &failure.missing {
                Some(missing) => error.with_hint(hint(missing, source, image)),
                None => error,
            }
        }
        "arguments" => {
            Error::new(ErrorKind::Argument, format!("the payload cannot take the arguments: {}", failure.message))
                .with_context("rank", rank)
        }
        "encode" => {
            let place = at.map_or_else(|| "the result".to_owned(), |path| format!("the result at `{path}`"));
            Error::new(ErrorKind::Encode, format!("{place} cannot be sent back: {}", failure.message))
                .with_context("type", failure.value_type.as_deref().unwrap_or("unknown"))
                .with_context("rank", rank)
                .with_hint("return numbers, text, bytes, lists, dicts, dataclasses, pydantic models or arrays")
        }
        "too_large" => Error::new(ErrorKind::Encode, failure.message.clone())
            .with_context("rank", rank)
            .with_hint("return it as a file, `sky.artifact(…)`, let the payload be a generator, or raise `Limits::max_frame_bytes`"),
        "exit" => Error::raised(Exception { type_name: "SystemExit".into(), ..exception() })
            .with_hint("a payload returns its result; `sys.exit` ends only the task"),
        "cancelled" => {
            Error::new(ErrorKind::Cancelled, "the task was cancelled on its worker").with_context("rank", rank)
        }
        "hook" => hook_error(failure, image, rank),
        _ => Error::raised(exception()),
    }
}

/// The error of a worker that does not become ready: of a plugin's hook, or of one of the payloads
/// that it imports.
pub(crate) fn start_error(
    failure: &Failure,
    imports: &[Arc<Source>],
    image: &[String],
    node: NodeIndex,
    rank: Rank,
) -> Error {
    let source = imports.iter().find(|source| failure.payload.as_deref() == Some(source.digest()));
    match source {
        Some(source) => task_error(failure, Some(source), image, node, rank)
            .with_context("while", format!("importing {} before the pool is ready", source.main())),
        None => hook_error(failure, image, rank),
    }
}

/// The error of a plugin's hook. `image` has the requirements of the image.
fn hook_error(failure: &Failure, image: &[String], rank: Rank) -> Error {
    let plugin = failure.plugin.as_deref().unwrap_or("a plugin");
    let phase = if failure.phase.as_deref() == Some("exit") { "leaving" } else { "entering" };
    let mut text = format!(
        "{phase} the hook of plugin `{plugin}` failed on rank {rank}: {}: {}",
        failure.qualified_type(),
        failure.message.trim_end()
    );
    if !failure.traceback.is_empty() {
        text.push('\n');
        text.push_str(failure.traceback.trim_end());
    }
    let error = Error::new(ErrorKind::Hook, text);
    match &failure.missing {
        Some(missing) => error.with_hint(hint(missing, None, image)),
        None => error,
    }
}
