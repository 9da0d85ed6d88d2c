//! DeleteSecurityGroup while the group is used.

use anyhow::Result;

use super::{Backend, Original};
use crate::proxy::{Call, Reply};

/// AWS documents: a group that an instance uses cannot be deleted, until the instance is terminated
/// and its interface is gone, which may take a while longer. moto deletes it.
pub(crate) async fn delete(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    let group = call.get("GroupId");
    let is_told = !call.is_dry_run() && {
        let mut settings = backend.settings();
        let is_told = settings.dependency_violations > 0;
        settings.dependency_violations = settings.dependency_violations.saturating_sub(1);
        is_told
    };
    if is_told || (!call.is_dry_run() && backend.records.uses(group)) {
        let message = format!("resource {group} has a dependent object");
        return Ok(Reply::error(call, 400, "DependencyViolation", &message));
    }
    backend.forward(original).await
}
