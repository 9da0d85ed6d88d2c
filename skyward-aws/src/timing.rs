//! The times of the provider, by what they bound.

use std::time::Duration;

/// The pause after a look-up of the client's address that failed.
pub(crate) const ADDRESS_AGAIN: Duration = Duration::from_secs(5);
/// How long the service may take that reports the address of this client.
pub(crate) const ADDRESS_ANSWER: Duration = Duration::from_secs(10);
/// How long the address of this client counts after it was looked up.
pub(crate) const ADDRESS_KEPT: Duration = Duration::from_secs(30);
/// How long before the end of a block EC2 begins to end its machines:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-how.html>.
pub(crate) const BLOCK_ENDS_EARLY: Duration = Duration::from_secs(30 * 60);
/// How long a call may take, including its retries.
pub(crate) const CALL: Duration = Duration::from_secs(50);
/// How long a call for one page of an answer may take.
pub(crate) const CALL_ATTEMPT: Duration = Duration::from_secs(20);
/// How long EC2 may take to list types and zones. Together with the time for prices, this is less
/// than a pool waits for offers, so that the error names what was slow.
pub(crate) const CATALOG_ANSWERS: Duration = Duration::from_secs(35);
/// How long a list of types and zones counts: AWS adds one to a region once in several months.
pub(crate) const CATALOG_KEPT: Duration = Duration::from_secs(24 * 3600);
/// The pause between two reads of a console.
pub(crate) const CONSOLE_PAUSE: Duration = Duration::from_secs(30);
/// How long the SDK may take to find credentials: it may refresh an SSO token or run a process.
pub(crate) const CREDENTIALS: Duration = Duration::from_secs(30);
/// How long a machine may take to answer which key it has.
pub(crate) const KEY_ANSWER: Duration = Duration::from_secs(30);
/// How long a call that launches instances may take. The SDK makes it once; the provider repeats it
/// with the same token.
pub(crate) const LAUNCH_CALL: Duration = Duration::from_secs(60);
/// How long EC2 can take to list what a call has made: its answers agree with each other some time
/// after a change.
pub(crate) const LISTED_LATE: Duration = Duration::from_secs(15);
/// The pause between two lists that look for what a call has made.
pub(crate) const LIST_PAUSE: Duration = Duration::from_millis(500);
/// A machine that boots is asked for its console after half of this time, or after half of the time
/// to boot where that is shorter.
pub(crate) const LONG_BOOT: Duration = Duration::from_secs(240);
/// How long the end of instances waits until their interfaces are in another group.
pub(crate) const PARKING: Duration = Duration::from_secs(10);
/// How long the group of the interfaces of ending instances is kept after its last use: an instance
/// ends within minutes.
pub(crate) const PARKING_KEPT: Duration = Duration::from_secs(3600);
/// How long the start of a pool may take. Nothing renews the tags until it ends.
pub(crate) const POOL_START: Duration = Duration::from_secs(60 * 60);
/// How long no call is made after one has failed, so that users who may not read prices do not wait
/// for it each time.
pub(crate) const PRICES_AGAIN: Duration = Duration::from_secs(300);
/// How long a price of the list counts.
pub(crate) const PRICES_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long the price list may take to return the prices of all offers.
pub(crate) const PRICE_ANSWERS: Duration = Duration::from_secs(20);
/// How long the service may take to return all quotas of a pool.
pub(crate) const QUOTA_ANSWERS: Duration = Duration::from_secs(10);
/// How long a refused login counts as a sign that the machine is still booting.
pub(crate) const REFUSED_LOGINS: Duration = Duration::from_secs(90);
/// The pause after a renewal of tags that failed.
pub(crate) const RENEWAL_AGAIN: Duration = Duration::from_secs(60);
/// How often a pool renews its tags, by one call for all of them.
pub(crate) const RENEWAL_PERIOD: Duration = Duration::from_secs(10 * 60);
/// After this time since its launch, an instance that EC2 does not list is gone.
pub(crate) const SEEN_WITHIN: Duration = Duration::from_secs(180);
/// How long an SSH server may take to restart with its new key.
pub(crate) const SERVER_RESTART: Duration = Duration::from_secs(3);
/// The pause between two tries to reach an SSH server that restarts.
pub(crate) const SERVER_RESTART_PAUSE: Duration = Duration::from_millis(20);
/// How long it may take to open a stream to a machine before the client looks whether its own address
/// has changed.
pub(crate) const SLOW_OPEN: Duration = Duration::from_secs(4);
/// How long EC2 may take to return the spot prices of all offers.
pub(crate) const SPOT_PRICE_ANSWERS: Duration = Duration::from_secs(20);
/// How long the provider remembers when a caller first asked about an instance that EC2 does not
/// list.
pub(crate) const UNKNOWN_KEPT: Duration = Duration::from_secs(3600);
/// How long before the end of a block of UltraServers EC2 begins to end its machines, by the same
/// page as for other blocks.
pub(crate) const ULTRA_BLOCK_ENDS_EARLY: Duration = Duration::from_secs(60 * 60);
/// How long EC2 may list a volume as one that nothing uses, between the end of its instance and its
/// own.
pub(crate) const VOLUME_DELETED: Duration = Duration::from_secs(3);
