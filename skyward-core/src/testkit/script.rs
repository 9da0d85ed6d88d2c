//! What a fake provider and its nodes do: faults of machines and connections, and answers to tasks.

mod answer;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::FakeArtifacts;
use super::fake_provider::Faults;
use super::fake_worker::{Faultless, Work};

pub use self::answer::Answer;
pub(super) use self::answer::{End, Step};
pub use self::task::FakeTask;

/// What happens on the machines of a [`FakeProvider`](super::fake_provider::FakeProvider): the
/// answers to tasks by [rules](Rule), and the [faults](Faults) of everything below.
///
/// The first rule that matches a task answers it. If a script has rules and none matches, the task
/// fails, and the error lists the rules. Without rules, a task returns its arguments.
///
/// A function of a service, tested without machines and without Python:
///
/// ```
/// # use skyward_core as skyward;
/// use std::sync::Arc;
///
/// use skyward::compute::PendingCompute;
/// use skyward::payload::{Args, Source};
/// use skyward::pool::Pool;
/// use skyward::testkit::fake_provider::FakeProvider;
/// use skyward::testkit::script::{Answer, Rule, Script};
///
/// # // `#[skyward::compute]` makes such a function.
/// fn train(epochs: u32) -> PendingCompute<f64> {
///     let source = Source::file("train.py", "def train(epochs): ...", "train");
///     PendingCompute::new(Arc::new(source), Args::new().with("epochs", &epochs))
/// }
///
/// /// The function under test: it trains longer until the accuracy is high enough.
/// async fn train_until(pool: &Pool, wanted: f64) -> skyward::Result<u32> {
///     let mut epochs = 1;
///     while train(epochs).run(pool).await? < wanted {
///         epochs *= 2;
///     }
///     Ok(epochs)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let short = Rule::task("train").when("epochs is below 4", |task| task.arg("epochs").is_some_and(|n: u32| n < 4));
/// let script = Script::new()
///     .rule(short.answer(|_| Answer::returns(&0.5)))
///     .rule(Rule::task("train").answer(|_| Answer::returns(&0.9).stdout("converged\n")));
/// let pool = Pool::builder().provider(FakeProvider::new(script)).start().await?;
/// assert_eq!(train_until(&pool, 0.8).await?, 4);
/// # pool.shutdown(std::time::Duration::from_secs(60)).await
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Script {
    pub(super) faults: Arc<dyn Faults>,
    pub(super) artifacts: FakeArtifacts,
    rules: Vec<Rule>,
}

/// Which tasks it matches, and how it answers them. Without [`answer`](Self::answer), a task
/// returns `None`.
#[derive(Clone)]
pub struct Rule {
    of: Of,
    conditions: Vec<(String, Arc<Condition>)>,
    answer: Arc<dyn Fn(&FakeTask<'_>) -> Answer + Send + Sync>,
}

/// What a rule can match.
#[derive(Debug, Clone)]
enum Of {
    All,
    /// The tasks of this entry.
    Tasks(String),
    /// The calls of this entry's tasks.
    Calls(String),
}

type Condition = dyn Fn(&FakeTask<'_>) -> bool + Send + Sync;

impl Script {
    /// A script without rules and faults.
    pub fn new() -> Self {
        Self { faults: Arc::new(Faultless), artifacts: FakeArtifacts::default(), rules: Vec::new() }
    }

    /// Replaces the faults.
    #[must_use]
    pub fn faults(mut self, faults: impl Faults) -> Self {
        self.faults = Arc::new(faults);
        self
    }

    /// Replaces the artifacts on the nodes, which answers may contain.
    #[must_use]
    pub fn artifacts(mut self, artifacts: &FakeArtifacts) -> Self {
        self.artifacts = artifacts.clone();
        self
    }

    /// Adds a rule behind the others.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// The answer to a task.
    pub(super) fn answer(&self, task: &FakeTask<'_>) -> Answer {
        match self.rules.iter().find(|rule| rule.matches(task)) {
            Some(rule) => (rule.answer)(task),
            None if self.rules.is_empty() => Answer::does(Work::Return(Duration::ZERO)),
            None => {
                let rules: Vec<_> = self.rules.iter().map(ToString::to_string).collect();
                let message = format!("no rule of the script answers {task}; its rules are: {}", rules.join("; "));
                Answer::raises("skyward.testkit.NoRule", &message)
            }
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Faults> From<Arc<F>> for Script {
    fn from(faults: Arc<F>) -> Self {
        Self { faults, ..Self::new() }
    }
}

impl Rule {
    /// Matches all tasks, and all calls that tasks make.
    pub fn all() -> Self {
        Self::of(Of::All)
    }

    /// Matches the tasks of payloads with this entry.
    pub fn task(entry: impl Into<String>) -> Self {
        Self::of(Of::Tasks(entry.into()))
    }

    /// Matches the calls that tasks of payloads with this entry make, directly or in their calls.
    pub fn calls_of(entry: impl Into<String>) -> Self {
        Self::of(Of::Calls(entry.into()))
    }

    fn of(of: Of) -> Self {
        Self { of, conditions: Vec::new(), answer: Arc::new(|_: &FakeTask<'_>| Answer::returns(&())) }
    }

    /// Matches only what also meets this condition. `text` stands for it in the error of a task
    /// that no rule matches.
    #[must_use]
    pub fn when(
        mut self,
        text: impl Into<String>,
        condition: impl Fn(&FakeTask<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.conditions.push((text.into(), Arc::new(condition)));
        self
    }

    /// Sets the answer.
    #[must_use]
    pub fn answer(mut self, answer: impl Fn(&FakeTask<'_>) -> Answer + Send + Sync + 'static) -> Self {
        self.answer = Arc::new(answer);
        self
    }

    fn matches(&self, task: &FakeTask<'_>) -> bool {
        let is_call = !task.path().is_empty();
        let is_meant = match &self.of {
            Of::All => true,
            Of::Tasks(entry) => !is_call && entry == task.entry(),
            Of::Calls(entry) => is_call && entry == task.entry(),
        };
        is_meant && self.conditions.iter().all(|(_, holds)| holds(task))
    }
}

/// What the rule matches.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Of::All => write!(f, "all tasks and calls")?,
            Of::Tasks(entry) => write!(f, "`{entry}`")?,
            Of::Calls(entry) => write!(f, "calls of `{entry}`")?,
        }
        for (index, (text, _)) in self.conditions.iter().enumerate() {
            write!(f, "{} {text}", if index == 0 { " where" } else { " and" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({self})")
    }
}
