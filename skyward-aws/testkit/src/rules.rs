//! Faults that a test declares: which calls they affect, how many of them, and how.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::proxy::Call;

/// A fault for the calls that it matches. Without a limit it affects all of them.
///
/// All delays and rewrites that match a call apply; of the other matching rules, only the first one
/// does.
#[derive(Clone)]
pub struct Rule {
    action: Option<String>,
    predicates: Vec<Predicate>,
    effect: Effect,
    skip: usize,
    times: Option<usize>,
    matched: usize,
}

#[derive(Clone)]
enum Effect {
    Error { status: u16, code: String, message: String },
    DropBefore,
    DropAfter,
    HangBefore,
    HangAfter,
    Delay(Duration),
    Rewrite(Rewrite),
}

type Predicate = Arc<dyn Fn(&Call) -> bool + Send + Sync>;
/// Makes a new body from the original one.
pub(crate) type Rewrite = Arc<dyn Fn(&str) -> String + Send + Sync>;

impl Rule {
    /// Refuses the calls of an action: an HTTP status, and a code and message as EC2 gives them.
    /// Nothing happens.
    pub fn error(action: &str, status: u16, code: &str, message: &str) -> Self {
        Self::new(action, Effect::Error { status, code: code.into(), message: message.into() })
    }

    /// Closes the connection without executing the call.
    pub fn drop_before(action: &str) -> Self {
        Self::new(action, Effect::DropBefore)
    }

    /// Executes the call, and closes the connection without an answer.
    pub fn drop_after(action: &str) -> Self {
        Self::new(action, Effect::DropAfter)
    }

    /// Never answers, and does not execute the call.
    pub fn hang(action: &str) -> Self {
        Self::new(action, Effect::HangBefore)
    }

    /// Executes the call, and never answers.
    pub fn hang_after(action: &str) -> Self {
        Self::new(action, Effect::HangAfter)
    }

    /// Delays the call.
    pub fn delay(action: &str, delay: Duration) -> Self {
        Self::new(action, Effect::Delay(delay))
    }

    /// Changes the body of the answer.
    pub fn rewrite(action: &str, rewrite: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::new(action, Effect::Rewrite(Arc::new(rewrite)))
    }

    /// Matches only calls whose parameter has this value.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Self {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.when(move |call| call.get(&name) == value)
    }

    /// Matches only calls for which the function returns true.
    #[must_use]
    pub fn when(mut self, predicate: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Arc::new(predicate));
        self
    }

    /// Affects only this many calls.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Leaves out the first calls.
    #[must_use]
    pub fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    fn new(action: &str, effect: Effect) -> Self {
        let action = (action != "*").then(|| action.to_owned());
        Self { action, predicates: Vec::new(), effect, skip: 0, times: None, matched: 0 }
    }

    /// Whether the rule applies to this call. Counts the call.
    fn takes(&mut self, call: &Call) -> bool {
        let matches = self.action.as_ref().is_none_or(|action| *action == call.action)
            && self.predicates.iter().all(|predicate| predicate(call));
        if !matches {
            return false;
        }
        self.matched += 1;
        self.matched > self.skip && self.times.is_none_or(|times| self.matched - self.skip <= times)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match &self.effect {
            Effect::Error { status, code, .. } => format!("{status} {code}"),
            Effect::DropBefore => "drop before".into(),
            Effect::DropAfter => "drop after".into(),
            Effect::HangBefore => "hang".into(),
            Effect::HangAfter => "hang after".into(),
            Effect::Delay(delay) => format!("delay {delay:?}"),
            Effect::Rewrite(_) => "rewrite".into(),
        };
        let action = self.action.as_deref().unwrap_or("*");
        write!(f, "Rule({action}: {effect}, {} matched, {} skipped, times {:?})", self.matched, self.skip, self.times)
    }
}

/// The rules in force; clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Rules(Arc<Mutex<Vec<Rule>>>);

impl Rules {
    /// Appends a rule.
    pub fn add(&self, rule: Rule) {
        self.lock().push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The faults of a call.
    pub(crate) fn take(&self, call: &Call) -> Fate {
        let mut fate = Fate::default();
        for rule in self.lock().iter_mut() {
            // The call does not count for rules after the one that decides.
            let is_open = fate.end == End::Answer;
            match &rule.effect {
                Effect::Delay(_) | Effect::Rewrite(_) => {}
                _ if !is_open => continue,
                _ => {}
            }
            if !rule.takes(call) {
                continue;
            }
            match &rule.effect {
                Effect::Delay(delay) => fate.delay += *delay,
                Effect::Rewrite(rewrite) => fate.rewrites.push(Arc::clone(rewrite)),
                Effect::Error { status, code, message } => {
                    fate.end = End::Error { status: *status, code: code.clone(), message: message.clone() };
                }
                Effect::DropBefore => fate.end = End::DropBefore,
                Effect::DropAfter => fate.end = End::DropAfter,
                Effect::HangBefore => fate.end = End::HangBefore,
                Effect::HangAfter => fate.end = End::HangAfter,
            }
        }
        fate
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The faults of one call.
#[derive(Default)]
pub(crate) struct Fate {
    pub(crate) delay: Duration,
    pub(crate) end: End,
    pub(crate) rewrites: Vec<Rewrite>,
}

/// How the call ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    Answer,
    Error {
        status: u16,
        code: String,
        message: String,
    },
    DropBefore,
    DropAfter,
    HangBefore,
    HangAfter,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(action: &str, zone: &str) -> Call {
        let parameters = [("Placement.AvailabilityZone".to_owned(), zone.to_owned())].into();
        Call { service: "ec2".into(), region: String::new(), action: action.into(), parameters, body: String::new() }
    }

    fn code(rules: &Rules, call: &Call) -> Option<String> {
        match rules.take(call).end {
            End::Error { code, .. } => Some(code),
            _ => None,
        }
    }

    #[test]
    fn a_rule_holds_for_what_it_matches_and_as_often_as_said() {
        let rules = Rules::default();
        let rule = Rule::error("RunInstances", 500, "X", "").with("Placement.AvailabilityZone", "a");
        rules.add(rule.after(1).times(2));
        let run = call("RunInstances", "a");
        let seen: Vec<bool> = (0..4).map(|_| code(&rules, &run).is_some()).collect();
        assert_eq!(seen, [false, true, true, false]);
        rules.clear();
        rules.add(Rule::error("RunInstances", 500, "X", "").when(|call| call.get("Placement.AvailabilityZone") == "b"));
        assert_eq!(code(&rules, &run), None);
        assert_eq!(code(&rules, &call("Describe", "b")), None);
        assert_eq!(code(&rules, &call("RunInstances", "b")).as_deref(), Some("X"));
    }

    #[test]
    fn the_first_that_decides_is_used_and_delays_add_up() {
        let rules = Rules::default();
        rules.add(Rule::delay("*", Duration::from_secs(1)));
        rules.add(Rule::error("RunInstances", 503, "First", "").times(1));
        rules.add(Rule::error("RunInstances", 503, "Second", "").times(1));
        rules.add(Rule::delay("*", Duration::from_secs(2)));
        let run = call("RunInstances", "a");
        assert_eq!(rules.take(&run).delay, Duration::from_secs(3));
        assert_eq!(code(&rules, &run).as_deref(), Some("Second"));
        assert_eq!(code(&rules, &run), None);
    }
}
