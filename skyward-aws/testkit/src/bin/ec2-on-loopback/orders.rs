//! Orders to the cloud, one on each line of standard input. The answer is a line of JSON: `{"ok":
//! …}`, or `{"error": WORDS}`.
//!
//! | line | effect and answer |
//! |---|---|
//! | `instances` | the instances whose machines are there: id, address, first process, all processes |
//! | `states` | the states of all instances by their ids, as EC2 has them |
//! | `left [TAG]` | the resources that a client has left; with a tag, only those that have it |
//! | `calls` | how often clients have called each action since the last such line |
//! | `interrupt ID SECONDS` | takes a spot instance back with this notice |
//! | `kill ID` | terminates an instance behind its client's back |
//! | `kill_sshd ID` | ends its SSH server with all sessions |
//! | `block_ssh ID on`, `off` | stops its SSH server, so that connections are neither answered nor refused; continues it |
//! | `error ACTION STATUS CODE TIMES` | refuses this many calls of an action, or of all actions with `*` |
//! | `drop_before ACTION TIMES`, `drop_after` | loses this many calls, or their answers |
//! | `forgive` | removes all faults of calls |

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use skyward_aws_testkit::{Cloud, Rule};

/// An order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Order {
    Instances,
    States,
    Left(Option<String>),
    Calls,
    Interrupt(String, Duration),
    Kill(String),
    KillSshd(String),
    BlockSsh(String, bool),
    Error { action: String, status: u16, code: String, times: usize },
    DropBefore(String, usize),
    DropAfter(String, usize),
    Forgive,
}

/// Executes the order.
pub(crate) async fn answer(cloud: &Cloud, line: &str) -> Value {
    let done = match Order::parse(line) {
        Ok(order) => perform(cloud, order).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": format!("{error:#}") }),
    }
}

impl Order {
    fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().with_context(|| format!("{word:?} is no number in {line:?}"));
        Ok(match words[..] {
            ["instances"] => Self::Instances,
            ["states"] => Self::States,
            ["left"] => Self::Left(None),
            ["left", tag] => Self::Left(Some(tag.to_owned())),
            ["calls"] => Self::Calls,
            ["interrupt", id, seconds] => {
                let seconds: f64 = seconds.parse().with_context(|| format!("{seconds:?} are no seconds"))?;
                Self::Interrupt(id.to_owned(), Duration::try_from_secs_f64(seconds)?)
            }
            ["kill", id] => Self::Kill(id.to_owned()),
            ["kill_sshd", id] => Self::KillSshd(id.to_owned()),
            ["block_ssh", id, "on"] => Self::BlockSsh(id.to_owned(), true),
            ["block_ssh", id, "off"] => Self::BlockSsh(id.to_owned(), false),
            ["error", action, status, code, times] => Self::Error {
                action: action.to_owned(),
                status: status.parse().with_context(|| format!("{status:?} is no HTTP status"))?,
                code: code.to_owned(),
                times: number(times)?,
            },
            ["drop_before", action, times] => Self::DropBefore(action.to_owned(), number(times)?),
            ["drop_after", action, times] => Self::DropAfter(action.to_owned(), number(times)?),
            ["forgive"] => Self::Forgive,
            _ => bail!(
                "{line:?} is not known; there are instances, states, left, calls, interrupt, kill, kill_sshd, \
                 block_ssh, error, drop_before, drop_after, forgive"
            ),
        })
    }
}

async fn perform(cloud: &Cloud, order: Order) -> Result<Value> {
    match order {
        Order::Instances => return Ok(instances(cloud)),
        Order::States => return Ok(json!(cloud.states().await?)),
        Order::Left(tag) => {
            let left = cloud.left(tag.as_deref()).await?;
            return Ok(left.iter().map(ToString::to_string).collect());
        }
        Order::Calls => {
            let mut counts = BTreeMap::<String, u64>::new();
            for action in cloud.calls().actions() {
                *counts.entry(action).or_default() += 1;
            }
            cloud.calls().forget();
            return Ok(json!(counts));
        }
        Order::Interrupt(id, notice) => cloud.interrupt(&id, notice)?,
        Order::Kill(id) => cloud.kill(&id).await?,
        Order::KillSshd(id) => cloud.kill_sshd(&id)?,
        Order::BlockSsh(id, is_blocked) => cloud.block_ssh(&id, is_blocked)?,
        Order::Error { action, status, code, times } => {
            let rule = Rule::error(&action, status, &code, "as it was asked for");
            cloud.rules().add(rule.times(times));
        }
        Order::DropBefore(action, times) => cloud.rules().add(Rule::drop_before(&action).times(times)),
        Order::DropAfter(action, times) => cloud.rules().add(Rule::drop_after(&action).times(times)),
        Order::Forgive => cloud.rules().clear(),
    }
    Ok(Value::Null)
}

fn instances(cloud: &Cloud) -> Value {
    let instances = cloud.instances().into_iter().map(|instance| {
        json!({
            "id": instance.id,
            "private": instance.private,
            "is_spot": instance.is_spot,
            "is_booted": instance.is_booted,
            "pid": instance.pid,
            "processes": instance.processes,
        })
    });
    instances.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let parse = |line: &str| Order::parse(line).unwrap();
        assert_eq!(parse("left skyward:pool"), Order::Left(Some("skyward:pool".into())));
        assert_eq!(parse("interrupt i-1 2.5"), Order::Interrupt("i-1".into(), Duration::from_millis(2500)));
        assert_eq!(parse(" block_ssh i-1 off "), Order::BlockSsh("i-1".into(), false));
        let (action, code) = ("RunInstances".to_owned(), "InternalError".to_owned());
        assert_eq!(
            parse("error RunInstances 500 InternalError 3"),
            Order::Error { action, status: 500, code, times: 3 }
        );
        assert_eq!(parse("drop_after * 2"), Order::DropAfter("*".into(), 2));
    }

    #[test]
    fn a_line_that_is_not_known_says_what_there_is() {
        let told = |line: &str| format!("{:#}", Order::parse(line).unwrap_err());
        assert!(told("explode i-1").contains("kill_sshd"));
        assert!(told("interrupt i-1 soon").contains("soon"));
        assert!(told("interrupt i-1 -1").contains("negative"));
        assert!(told("drop_after RunInstances often").contains("often"));
        assert!(told("error * x y 1").contains("HTTP"));
    }
}
