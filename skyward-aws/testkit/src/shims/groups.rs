//! DeleteSecurityGroup, as a test may want it refused. `moto/moto_loopback.py` refuses to delete a
//! group that is used.

use anyhow::Result;

use super::{Backend, Original};
use crate::proxy::{Call, Reply};

/// Refuses so many deletions as a test has asked for, as EC2 does while parts of it do not know yet
/// that an interface is gone.
pub(crate) async fn delete(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    drop(backend.settled().await);
    let is_told = !call.is_dry_run() && {
        let mut settings = backend.settings();
        let is_told = settings.dependency_violations > 0;
        settings.dependency_violations = settings.dependency_violations.saturating_sub(1);
        is_told
    };
    if is_told {
        let message = format!("resource {} has a dependent object", call.get("GroupId"));
        return Ok(Reply::error(call, 400, "DependencyViolation", &message));
    }
    backend.forward(original).await
}
