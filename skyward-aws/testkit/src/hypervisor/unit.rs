//! Units of systemd, as far as a machine of the loopback EC2 plays them. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

/// A unit: what a service runs, or what a timer starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unit {
    Service(Box<Service>),
    Timer { after: Duration, starts: Option<String> },
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    /// Whether the start of the unit waits until its command has ended.
    pub(crate) is_oneshot: bool,
    pub(crate) stays: bool,
    pub(crate) before: Vec<Exec>,
    pub(crate) start: Vec<Exec>,
    pub(crate) stop: Vec<Exec>,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) folder: Option<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) restart: Restart,
    pub(crate) pause: Duration,
    /// How many starts within which time are too many.
    pub(crate) limit: (usize, Duration),
    pub(crate) patience: Duration,
    /// The signal that asks its main command to end.
    pub(crate) signal: Signal,
    /// Whether what its main command has started ends with it.
    pub(crate) kills_all: bool,
    /// Settings that have no effect here.
    pub(crate) ignored: Vec<String>,
}

/// A command of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exec {
    pub(crate) program: Vec<String>,
    pub(crate) may_fail: bool,
}

/// When a service is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    No,
    OnSuccess,
    OnFailure,
    Always,
}

impl Restart {
    pub(crate) fn holds(self, is_success: bool) -> bool {
        match self {
            Self::No => false,
            Self::OnSuccess => is_success,
            Self::OnFailure => !is_success,
            Self::Always => true,
        }
    }
}

impl Unit {
    /// Reads a unit file.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self> {
        let settings = settings(text)?;
        let last = |section: &str, key: &str| {
            let found = settings.iter().rev().find(|setting| setting.0 == section && setting.1 == key);
            found.map(|setting| setting.2.as_str()).filter(|value| !value.is_empty())
        };
        if name.ends_with(".timer") {
            let after = last("Timer", "OnActiveSec").or_else(|| last("Timer", "OnBootSec"));
            let after = span(after.with_context(|| format!("{name} has neither OnActiveSec nor OnBootSec"))?)?;
            return Ok(Self::Timer { after, starts: last("Timer", "Unit").map(str::to_owned) });
        }
        if !name.ends_with(".service") {
            bail!("{name} is neither a service nor a timer");
        }
        let environment = environment(&settings)?;
        let commands = |key: &str| -> Result<Vec<Exec>> {
            let mut commands = Vec::new();
            for (section, name, value) in &settings {
                if section == "Service" && name == key {
                    if value.is_empty() {
                        commands.clear();
                    } else {
                        commands.push(Exec::parse(value, &environment)?);
                    }
                }
            }
            Ok(commands)
        };
        let kind = last("Service", "Type").unwrap_or("simple");
        if !["simple", "exec", "oneshot"].contains(&kind) {
            bail!("{name} is of the type {kind}, which the loopback EC2 does not play");
        }
        let restart = match last("Service", "Restart").unwrap_or("no") {
            "no" => Restart::No,
            "on-success" => Restart::OnSuccess,
            "on-failure" | "on-abnormal" | "on-abort" | "on-watchdog" => Restart::OnFailure,
            "always" => Restart::Always,
            other => bail!("{name} has Restart={other}, which systemd does not know"),
        };
        let signal = match last("Service", "KillSignal").unwrap_or("SIGTERM") {
            "SIGTERM" => Signal::TERM,
            "SIGINT" => Signal::INT,
            "SIGKILL" => Signal::KILL,
            other => bail!("{name} has KillSignal={other}, which the loopback EC2 does not play"),
        };
        let time = |section, key, or| last(section, key).map_or(Ok(or), span);
        let burst = last("Unit", "StartLimitBurst").map_or(Ok(5), str::parse).context("StartLimitBurst")?;
        let (before, start, stop) = (commands("ExecStartPre")?, commands("ExecStart")?, commands("ExecStop")?);
        if start.is_empty() {
            bail!("{name} has no ExecStart");
        }
        Ok(Self::Service(Box::new(Service {
            is_oneshot: kind == "oneshot",
            stays: matches!(last("Service", "RemainAfterExit"), Some("yes" | "true" | "1" | "on")),
            before,
            start,
            stop,
            user: last("Service", "User").map(str::to_owned),
            group: last("Service", "Group").map(str::to_owned),
            folder: last("Service", "WorkingDirectory").map(str::to_owned),
            restart,
            pause: time("Service", "RestartSec", Duration::from_millis(100))?,
            limit: (burst, time("Unit", "StartLimitIntervalSec", Duration::from_secs(10))?),
            patience: time("Service", "TimeoutStopSec", Duration::from_secs(90))?,
            signal,
            kills_all: !matches!(last("Service", "KillMode"), Some("process" | "none")),
            ignored: ignored(&settings),
            environment,
        })))
    }
}

impl Exec {
    fn parse(line: &str, environment: &BTreeMap<String, String>) -> Result<Self> {
        let line = line.trim();
        let (may_fail, line) = line.strip_prefix('-').map_or((false, line), |line| (true, line));
        if line.starts_with(['@', '+', '!', ':', '|']) {
            bail!("the command {line:?} has a prefix that the loopback EC2 does not play");
        }
        let mut program = Vec::new();
        for word in words(line)? {
            // A variable alone becomes as many words as its value has.
            let variable = word.strip_prefix('$').filter(|name| !name.starts_with(['{', '$']) && !name.contains('$'));
            match variable {
                Some(name) if is_name(name) => {
                    let value = environment.get(name).map_or("", String::as_str);
                    program.extend(value.split_whitespace().map(str::to_owned));
                }
                _ => program.push(expand(&word, environment)?),
            }
        }
        if program.is_empty() {
            bail!("a command is empty");
        }
        Ok(Self { program, may_fail })
    }
}

/// Section, key and value of each line.
fn settings(text: &str) -> Result<Vec<(String, String, String)>> {
    let (mut found, mut section) = (Vec::new(), String::new());
    let joined = text.replace("\\\n", " ");
    for line in joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, value)) = line.split_once('=') {
            found.push((section.clone(), key.trim().to_owned(), value.trim().to_owned()));
        } else {
            bail!("the line {line:?} is no setting");
        }
    }
    Ok(found)
}

fn environment(settings: &[(String, String, String)]) -> Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for (_, key, value) in settings.iter().filter(|setting| setting.0 == "Service") {
        if key == "EnvironmentFile" {
            bail!("EnvironmentFile is not played by the loopback EC2");
        }
        for word in if key == "Environment" { words(value)? } else { Vec::new() } {
            let (name, value) = word.split_once('=').with_context(|| format!("{word:?} is no variable"))?;
            variables.insert(name.to_owned(), specifiers(value)?);
        }
    }
    Ok(variables)
}

/// Words with the quotes of systemd.
fn words(line: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, Some(open)) if character == open => quote = None,
            ('\\', _) => {
                let escaped = characters.next().context("a backslash ends the line")?;
                word.get_or_insert_default().push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    's' => ' ',
                    '\\' | '"' | '\'' => escaped,
                    other => bail!("the escape \\{other} is not played by the loopback EC2"),
                });
            }
            (_, None) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        bail!("a quote is not closed in {line:?}");
    }
    words.extend(word);
    Ok(words)
}

/// `${NAME}` and `$$` within a word.
fn expand(word: &str, environment: &BTreeMap<String, String>) -> Result<String> {
    let (mut rest, mut text) = (word, String::new());
    while let Some((before, after)) = rest.split_once('$') {
        text += before;
        if let Some(after) = after.strip_prefix('$') {
            text.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('{').and_then(|after| after.split_once('}')) {
            text += environment.get(name).map_or("", String::as_str);
            rest = after;
        } else {
            text.push('$');
            rest = after;
        }
    }
    specifiers(&(text + rest))
}

/// Of the specifiers only that for the sign itself is played.
fn specifiers(text: &str) -> Result<String> {
    let plain = text.replace("%%", "");
    if let Some((_, after)) = plain.split_once('%') {
        bail!("the specifier %{} is not played by the loopback EC2", after.chars().next().unwrap_or(' '));
    }
    Ok(text.replace("%%", "%"))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// A time such as `5`, `1.5s`, `500ms`, `2min 30s`.
fn span(text: &str) -> Result<Duration> {
    if text == "infinity" {
        return Ok(Duration::from_secs(u64::from(u32::MAX)));
    }
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().with_context(|| format!("{text:?} is no time"))?;
        rest = rest[end..].trim_start();
        let end = rest.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "" | "s" | "sec" | "second" | "seconds" => 1.0,
            "ms" | "msec" => 1e-3,
            "us" | "usec" => 1e-6,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86400.0,
            other => bail!("{other:?} in {text:?} is no unit of time"),
        };
        total += Duration::try_from_secs_f64(number * unit).with_context(|| format!("{text:?} is no time"))?;
        rest = rest[end..].trim_start();
    }
    Ok(total)
}

fn ignored(settings: &[(String, String, String)]) -> Vec<String> {
    let service = settings.iter().filter(|setting| setting.0 == "Service");
    service.map(|setting| setting.1.clone()).filter(|key| !PLAYED.contains(&key.as_str())).collect()
}

/// Settings of a service that are played, and those that change nothing here.
const PLAYED: [&str; 18] = [
    "Environment",
    "ExecStart",
    "ExecStartPre",
    "ExecStop",
    "Group",
    "KillMode",
    "KillSignal",
    "RemainAfterExit",
    "Restart",
    "RestartSec",
    "StandardError",
    "StandardInput",
    "StandardOutput",
    "SyslogIdentifier",
    "TimeoutStopSec",
    "Type",
    "User",
    "WorkingDirectory",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn service(text: &str) -> Service {
        match Unit::parse("x.service", text).unwrap() {
            Unit::Service(service) => *service,
            Unit::Timer { .. } => panic!("a timer"),
        }
    }

    #[test]
    fn a_service_is_read_with_its_quotes_and_variables() {
        let service = service(
            "[Unit]\nDescription=x\nStartLimitIntervalSec=0\n[Service]\n# a comment\nUser=ubuntu\nRestart=always\nRestartSec=1min 500ms\n\
             Environment=\"A=one two\" B=3\nExecStartPre=-/bin/mkdir /x\nExecStart=/bin/sh -c 'echo \"$$HOME\" ${A}' \\\n  $A %% \"\"\nNice=5\n",
        );
        let program = ["/bin/sh", "-c", "echo \"$HOME\" one two", "one", "two", "%", ""];
        assert_eq!(service.start[0].program, program);
        assert!(service.before[0].may_fail && !service.start[0].may_fail);
        assert_eq!(service.user.as_deref(), Some("ubuntu"));
        assert_eq!(service.restart, Restart::Always);
        assert_eq!(service.pause, Duration::from_millis(60_500));
        assert_eq!(service.limit.1, Duration::ZERO);
        assert_eq!(service.signal, Signal::TERM);
        assert_eq!(service.ignored, ["Nice"]);
    }

    #[test]
    fn what_is_not_played_is_refused() {
        let refused = |line: &str| {
            format!("{:#}", Unit::parse("x.service", &format!("[Service]\nExecStart=/x\n{line}\n")).unwrap_err())
        };
        assert!(refused("Type=notify").contains("notify"));
        assert!(refused("ExecStartPre=+/x").contains("+/x"));
        assert!(refused("ExecStartPre=/x %h").contains("%h"));
        assert!(refused("KillSignal=SIGUSR1").contains("SIGUSR1"));
        assert!(refused("RestartSec=5 parsecs").contains("parsecs"));
        assert!(refused("ExecStartPre=/x 'y").contains("quote"));
        assert!(Unit::parse("x.service", "[Service]\n").is_err());
    }

    #[test]
    fn a_timer_says_when_and_what() {
        let timer = Unit::parse("x.timer", "[Timer]\nOnBootSec=2h\n").unwrap();
        assert_eq!(timer, Unit::Timer { after: Duration::from_secs(7200), starts: None });
    }
}
