//! The times of the clauses of providers, by what they bound.

use std::time::Duration;

/// How long any call may take, and how long a machine may take from its end until it is gone.
pub(super) const CALL: Duration = Duration::from_secs(600);
/// How much of a machine's life the clocks may round away.
pub(super) const CLOCKS_ROUND: Duration = Duration::from_millis(10);
/// How long a machine may take from its end until it is reported as ending, on a busy host.
pub(super) const END_REPORTED: Duration = Duration::from_secs(60);
/// How long a keeper may take to end the processes of its machine, on a busy host.
pub(super) const KEEPER_END: Duration = Duration::from_secs(10);
/// How long a clause looks for something that must not appear, after the time in which it may. A
/// longer time finds more faults, and no value makes a correct provider fail.
pub(super) const LATE_APPEARANCE: Duration = Duration::from_secs(3);
/// The lease of machines that nobody renews, which must not end during a clause.
pub(super) const LASTING_LEASE: Duration = CALL;
/// The longest pause between two looks at what launches have left whose callers dropped them.
pub(super) const LONGEST_DROPPED_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two looks at something that changes.
pub(super) const LONGEST_LOOK_PAUSE: Duration = Duration::from_secs(2);
/// How much of a notice a provider may round away, which counts in whole seconds.
pub(super) const NOTICES_ROUND: Duration = Duration::from_secs(2);
/// How exact the times of a provider's records must be: a service may count whole seconds.
pub(super) const RECORD_PRECISION: Duration = Duration::from_secs(1);
/// The lease of a machine when the suite renews it.
pub(super) const RENEWED_LEASE: Duration = Duration::from_secs(60);
/// How long before its end the service decides to take a machine back.
pub(super) const SERVICE_NOTICE: Duration = Duration::from_secs(120);
/// The lease of a machine when the suite does not renew it, and the machine is to end.
pub(super) const SHORT_LEASE: Duration = Duration::from_secs(4);
/// The time after which a machine that is launched with an end ends.
pub(super) const SHORT_LIFE: Duration = Duration::from_secs(6);
