//! Where bytes outlive machines: objects with names, which are created once and never changed.

mod check;
mod error;
mod folder;
mod handle;
mod objects;
mod path;
mod scratch;
mod timing;

#[cfg(any(test, feature = "testkit"))]
pub(crate) use error::missing;
pub(crate) use error::refused;
pub use handle::Storage;
pub use objects::{Created, Object, StoredObjects};
pub use path::ObjectPath;
