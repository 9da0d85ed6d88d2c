//! Renews the lease of a machine that has no agent yet.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::ids::MachineId;
use crate::provider::keeper::LEASE_FILE;
use crate::remote::{Command, Remote, shell};

/// Renews the lease until the future is dropped. A slow renewal is useful for as long as the lease
/// lasts, and the next renewal does not wait for it, because it may be lost. Without a lease there
/// is nothing to renew, and once the machine `is_paid` no more, nothing is renewed.
pub(crate) async fn renew(
    remote: &dyn Remote,
    machine: &MachineId,
    folder: &str,
    lease: Option<Duration>,
    is_paid: &(dyn Fn() -> bool + Sync),
) -> Infallible {
    let Some(lease) = lease else { return std::future::pending().await };
    let pause = lease / 4;
    let file = format!("{folder}/{LEASE_FILE}");
    let touch = Command::new(shell::script(TOUCH).into_iter().chain([file])).deadline(lease);
    let mut ticks = interval_at(Instant::now() + pause, pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewals = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick() => {
                if is_paid() {
                    renewals.push(remote.run(&touch, &|_| {}));
                }
            }
            // Collects every renewal that ends, also successful ones: the other renewals proceed
            // only while they are polled, and one of them may be opening the connection for all of
            // them.
            Some(renewed) = renewals.next() => {
                if let Err(error) = renewed {
                    // The step that runs fails for the same reason, and reports it.
                    tracing::debug!(%machine, %error, "the lease could not be renewed");
                }
            }
        }
    }
}

/// Sets the time of a file to the machine's uptime, which nobody can set: the file then tells for how
/// long nobody has renewed the lease. Where that is not possible, any other time is a renewal for the
/// keeper. `-c`: the file is never created again, because removing it is a way to end the machine.
const TOUCH: &str = r#"{ read -r up rest </proc/uptime && touch -c -m -d "@$up" "$0"; } 2>/dev/null || touch -c "$0""#;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::error::{Error, ErrorKind, Result};
    use crate::remote::{ByteStream, CommandOutput, OnLine};

    /// Takes this long for each command and loses the first one; records when the others were done.
    #[derive(Debug)]
    struct Slow(Duration, Mutex<Vec<Instant>>);

    #[async_trait]
    impl Remote for Slow {
        fn describe(&self) -> String {
            "slow".into()
        }

        async fn run(&self, command: &Command, _: OnLine<'_>) -> Result<CommandOutput> {
            let first = self.1.lock().unwrap().is_empty();
            if first {
                self.1.lock().unwrap().push(Instant::now());
                return std::future::pending().await;
            }
            let late = |_| Error::new(ErrorKind::Timeout, "late");
            timeout(command.deadline, sleep(self.0)).await.map_err(late)?;
            self.1.lock().unwrap().push(Instant::now());
            Ok(CommandOutput::new(0, "", ""))
        }

        async fn put(&self, _: &str, _: &[u8], _: u32) -> Result<()> {
            std::future::pending().await
        }

        async fn open(&self, _: &str) -> Result<ByteStream> {
            std::future::pending().await
        }

        async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
            Ok(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_over_a_slow_connection_that_loses_a_renewal() {
        let lease = Duration::from_secs(8);
        let remote = Slow(lease / 2, Mutex::default());
        let begin = Instant::now();
        let _ = timeout(lease * 4, renew(&remote, &MachineId::new("one"), "/one", Some(lease), &|| true)).await;
        let done = remote.1.into_inner().unwrap();
        let times = [&[begin], &done[1..], &[Instant::now()]].concat();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        // The keeper waits a little longer than the lease.
        assert!(longest <= lease, "{longest:?} without a renewal: {times:?}");
    }

    /// The first command takes longer than the pause between two renewals; the others take many
    /// short steps. Records when the others were done.
    #[derive(Debug, Default)]
    struct Stepwise(Mutex<(u32, Vec<Instant>)>);

    #[async_trait]
    impl Remote for Stepwise {
        fn describe(&self) -> String {
            "stepwise".into()
        }

        async fn run(&self, _: &Command, _: OnLine<'_>) -> Result<CommandOutput> {
            let number = {
                let mut state = self.0.lock().unwrap();
                state.0 += 1;
                state.0
            };
            if number == 1 {
                sleep(Duration::from_millis(2500)).await;
            } else {
                for _ in 0..10 {
                    sleep(Duration::from_millis(100)).await;
                }
                self.0.lock().unwrap().1.push(Instant::now());
            }
            Ok(CommandOutput::new(0, "", ""))
        }

        async fn put(&self, _: &str, _: &[u8], _: u32) -> Result<()> {
            std::future::pending().await
        }

        async fn open(&self, _: &str) -> Result<ByteStream> {
            std::future::pending().await
        }

        async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
            Ok(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_proceeds_when_the_one_before_it_has_ended() {
        let lease = Duration::from_secs(8);
        let remote = Stepwise::default();
        let begin = Instant::now();
        let _ = timeout(lease, renew(&remote, &MachineId::new("one"), "/one", Some(lease), &|| true)).await;
        let done = remote.0.into_inner().unwrap().1;
        // The second renewal began with the second tick, and its steps take one second without
        // interruption.
        assert!(done[0] - begin < Duration::from_millis(5100), "{:?}", done[0] - begin);
    }

    #[test]
    fn a_renewal_is_read_as_the_uptime_of_its_moment() {
        const PLACE: &str = include_str!("../../provider/hosts/scripts/place.sh");

        let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        let base = folder.to_str().unwrap();
        let file = format!("{base}/{LEASE_FILE}");
        let look = |touch: bool| {
            std::fs::write(&file, "").unwrap();
            if touch {
                assert!(std::process::Command::new("sh").args(["-c", TOUCH, &file]).status().unwrap().success());
            }
            let say = "look_up_renewal \"$base\"\necho \"$uptime $renewal\"";
            let script = format!("base={base}\nexpected=\n{PLACE}{say}");
            let said = std::process::Command::new("sh").args(["-eu", "-c", &script]).output().unwrap();
            let said = String::from_utf8(said.stdout).unwrap();
            let (uptime, renewal) = said.lines().last().unwrap().split_once(' ').unwrap();
            (uptime.parse::<u64>().unwrap(), renewal.parse::<u64>().ok())
        };
        let (uptime, renewal) = look(true);
        let (_, by_another_clock) = look(false);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(renewal.is_some_and(|renewal| renewal <= uptime && uptime - renewal < 2000), "{uptime} {renewal:?}");
        assert_eq!(by_another_clock, None, "a time of the calendar is no renewal");
    }
}
