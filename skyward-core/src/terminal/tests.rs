use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressDrawTarget, TermLike};

use super::story::Row;
use super::*;
use crate::error::{Error, ErrorKind, RankStacks, WorkerExit, silence};
use crate::event::{OutputChunk, PoolEvent, Transfer, TransferState};
use crate::ids::{Attempt, Generation, MachineId, NodeIndex, Rank, TaskId};

fn story() -> Story {
    Story::new(false, true, false, false)
}

fn event(event: PoolEvent) -> EventItem {
    EventItem::Event(Arc::new(event))
}

fn output(rank: u32, stream: OutputStream, offset: u64, bytes: &'static [u8]) -> EventItem {
    event(PoolEvent::Output(OutputChunk::new(NodeIndex(0), Rank(rank), stream, Generation(1), offset, bytes)))
}

fn life() -> Vec<EventItem> {
    let node = NodeIndex(0);
    let machine = MachineId::new("m-1");
    vec![
        event(PoolEvent::NodeLaunching { node }),
        event(PoolEvent::NodeLaunched { node, machine: machine.clone(), address: "127.0.3.1".into() }),
        event(PoolEvent::BootstrapStep { node, step: "environment" }),
        event(PoolEvent::BootstrapLine {
            node,
            step: "environment",
            line: "\u{1b}[2mResolved 3 packages\u{1b}[0m".into(),
        }),
        event(PoolEvent::GenerationStarting { generation: Generation(1), workers: 2 }),
        event(PoolEvent::WorkerReady { rank: Rank(1), node, pid: 71 }),
        event(PoolEvent::WorkerReady { rank: Rank(0), node, pid: 70 }),
        event(PoolEvent::PoolReady { nodes: 1, workers: 2 }),
        event(PoolEvent::TaskStarted { task: TaskId(1), attempt: Attempt(1), rank: Rank(0) }),
        output(0, OutputStream::Stdout, 0, b"epoch 1\nepo"),
        output(1, OutputStream::Stderr, 0, b"careful\n\xff"),
        output(0, OutputStream::Stdout, 11, b"ch 2\n"),
        event(PoolEvent::TaskRetried {
            task: TaskId(1),
            attempt: Attempt(2),
            error: Error::new(ErrorKind::WorkerExited, "it broke").with_hint("mend it"),
        }),
        event(PoolEvent::WorkerExited { rank: Rank(1), exit: WorkerExit::Signal(11) }),
        EventItem::Missed(3),
        event(PoolEvent::Draining),
        event(PoolEvent::WorkerExited { rank: Rank(0), exit: WorkerExit::Code(0) }),
        event(PoolEvent::NodeGone { node, machine }),
        event(PoolEvent::Closed),
    ]
}

/// The standard output and standard error of these events, without a terminal.
fn plain(story: Story, items: Vec<EventItem>) -> (String, String) {
    let (sender, receiver) = mpsc::channel(items.len().max(1));
    for item in items {
        sender.try_send(item).unwrap();
    }
    drop(sender);
    let mut stage = Plain { stdout: Vec::new(), stderr: Vec::new() };
    follow(story, receiver, &mut stage);
    (String::from_utf8(stage.stdout).unwrap(), String::from_utf8(stage.stderr).unwrap())
}

#[test]
fn the_life_of_a_pool_in_plain_lines() {
    let (stdout, stderr) = plain(story(), life());
    assert_eq!(stdout, "[rank 0] epoch 1\n[rank 0] epoch 2\n");
    let stderr: Vec<_> = stderr.lines().filter(|line| !line.contains(" after ")).collect();
    assert_eq!(
        stderr,
        [
            "node 0: launching",
            "node 0: launched machine m-1 at 127.0.3.1",
            "node 0: environment",
            "node 0: environment: Resolved 3 packages",
            "starting 2 workers (generation 1)",
            "rank 1 is ready: node 0, process 71 (1 of 2)",
            "rank 0 is ready: node 0, process 70 (2 of 2)",
            "[rank 1] careful",
            "task 1 is retried (attempt 2): it broke",
            "[rank 1] \u{fffd}",
            "the worker of rank 1 was ended by SIGSEGV (signal 11)",
            "3 events were not shown: the terminal was too slow",
            "ending",
            "node 0: machine m-1 is gone",
        ]
    );
}

#[test]
fn times_have_units() {
    let mut story = story();
    let ready = event(PoolEvent::PoolReady { nodes: 1, workers: 2 });
    let render = |story: &mut Story, millis| story.render(&ready, Duration::from_millis(millis));
    assert_eq!(render(&mut story, 3140), [Show::Note("ready after 3.1 s: 1 node, 2 workers".into())]);
    assert_eq!(render(&mut story, 125_000), [Show::Note("ready again after 2 min 5 s: 1 node, 2 workers".into())]);
}

#[test]
fn progress_and_output_can_each_be_hidden() {
    let (stdout, stderr) = plain(Story::new(true, true, false, false), life());
    assert_eq!(stdout, "[rank 0] epoch 1\n[rank 0] epoch 2\n");
    assert_eq!(stderr, "[rank 1] careful\n[rank 1] \u{fffd}\n");
    let (stdout, stderr) = plain(Story::new(false, false, false, false), life());
    assert_eq!(stdout, "");
    assert!(stderr.contains("ready after") && !stderr.contains("[rank"));
    assert_eq!(plain(Story::new(true, false, false, false), life()), (String::new(), String::new()));
}

#[test]
fn an_unfinished_line_is_shown_at_the_end() {
    let items = vec![output(2, OutputStream::Stdout, 0, b"loss: 0.5")];
    assert_eq!(plain(story(), items).0, "[rank 2] loss: 0.5\n");
    let items = vec![output(0, OutputStream::Stdout, 0, b"a\n"), output(0, OutputStream::Stdout, 6, b"b\n")];
    assert_eq!(plain(story(), items).0, "[rank 0] a\n[rank 0] … 4 bytes were not shown\n[rank 0] b\n");
}

#[test]
fn a_gang_without_progress_is_shown_with_its_stacks() {
    let text = |name: &str| {
        format!("Current thread 0x1 (most recent call first):\n  File \"a.py\", line 5 in {name}\u{1b}[2J\n")
    };
    let stacks = |names: &[&str]| -> Vec<RankStacks> {
        (0..).zip(names).map(|(rank, name)| RankStacks::new(Rank(rank), &text(name), 10_000)).collect()
    };
    let shown = |stacks: Vec<RankStacks>| {
        let silent = Duration::from_secs(600);
        let message = silence(silent, &stacks);
        let (task, stacks) = (TaskId(1), stacks.into());
        let (entry, payload) = ("train".into(), "train.py".into());
        plain(story(), vec![event(PoolEvent::TaskStalled { task, entry, payload, silent, message, stacks })]).1
    };
    assert_eq!(
        shown(stacks(&["here", "there"])).lines().collect::<Vec<_>>(),
        [
            "task 1, `train`: no progress for 600s: rank 0 was in `here` (a.py:5), rank 1 was in `there` (a.py:5)",
            "stacks of rank 0:",
            "  Current thread 0x1 (most recent call first):",
            "    File \"a.py\", line 5 in here",
            "stacks of rank 1:",
            "  Current thread 0x1 (most recent call first):",
            "    File \"a.py\", line 5 in there",
        ]
    );
    let names: Vec<String> = (0..100).map(|rank| format!("f{rank}")).collect();
    let many = shown(stacks(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(many.lines().count(), 62);
    assert_eq!(many.lines().last(), Some("  … 240 more lines"));
}

#[test]
fn rows_follow_the_start_and_disappear_after_it() {
    let mut story = story();
    let mut rows = Vec::new();
    for item in life() {
        story.render(&item, Duration::ZERO);
        rows.push(story.rows());
    }
    let text = |text: &str| vec![Row::Text(text.to_owned())];
    let bar = |done| vec![Row::Bar { text: "workers".into(), done, total: 2 }];
    assert_eq!(rows[0], text("node 0: launching"));
    assert_eq!(rows[3], text("node 0: environment: Resolved 3 packages"));
    assert_eq!(rows[4..7], [bar(0), bar(1), bar(2)]);
    assert!(rows[7..15].iter().all(Vec::is_empty));
    assert_eq!(rows[15], text("node 0: ending"));
    assert!(rows[17..].iter().all(Vec::is_empty));
}

#[test]
fn a_progress_that_overwrites_its_line_has_a_row_and_stays_in_its_last_state() {
    let mut story = story();
    let mut at = 0;
    let mut said = |bytes: &'static [u8]| {
        let chunk = OutputChunk::new(
            NodeIndex(0),
            Rank(1),
            OutputStream::Stderr,
            Generation(1),
            at,
            bytes::Bytes::from_static(bytes),
        );
        at += bytes.len() as u64;
        let shows = story.render(&event(PoolEvent::Output(chunk)), Duration::ZERO);
        (shows, story.rows())
    };
    let row = |text: &str| vec![Row::Text(text.to_owned())];
    assert_eq!(said(b"\r 10%|# |"), (vec![], row("[rank 1]  10%|# |")));
    assert_eq!(said(b"\r\x1b[2K100%|##|"), (vec![], row("[rank 1] 100%|##|")));
    let last = vec![Show::Output(OutputStream::Stderr, "[rank 1] 100%|##|".to_owned())];
    assert_eq!(said(b"\n"), (last, vec![]));
}

#[test]
fn a_task_has_a_row_while_calls_below_it_run_or_wait() {
    let mut story = story();
    let mut rows = |item: EventItem| {
        assert!(
            story.render(&item, Duration::ZERO).iter().all(|show| matches!(show, Show::Note(_))),
            "no line for each"
        );
        story.rows()
    };
    let calls = |task, done, running, waiting| event(PoolEvent::Calls { task: TaskId(task), done, running, waiting });
    let row = |text: &str| Row::Text(text.to_owned());
    rows(calls(7, 0, 1, 3));
    let first = row("task 7: 2 calls done, 2 running, 0 waiting");
    assert_eq!(rows(calls(7, 2, 2, 0)), std::slice::from_ref(&first));
    assert_eq!(rows(calls(9, 0, 0, 5)), [first, row("task 9: 0 calls done, 0 running, 5 waiting")]);
    assert_eq!(rows(calls(7, 4, 0, 0)).len(), 1);
    assert_eq!(rows(EventItem::Missed(1)), [], "the last report may have been missed");
}

#[test]
fn the_loss_and_replacement_of_a_node_are_lines_and_leave_no_row() {
    let mut story = story();
    for item in life().into_iter().take(8) {
        story.render(&item, Duration::ZERO);
    }
    let (node, machine) = (NodeIndex(0), MachineId::new("m-2"));
    let gone = || Error::new(ErrorKind::Io, "the agent ended its connection");
    let mut notes = Vec::new();
    for lost in [
        PoolEvent::NodeLost { node, error: gone() },
        PoolEvent::NodeUnconfirmed { node, error: gone() },
        PoolEvent::NodeLaunching { node },
        PoolEvent::NodeLaunched { node, machine: machine.clone(), address: "10.0.0.2".into() },
        PoolEvent::GenerationStarting { generation: Generation(1), workers: 1 },
        PoolEvent::WorkerReady { rank: Rank(0), node, pid: 7 },
        PoolEvent::NodeReplaced { node, machine, address: "10.0.0.2".into() },
    ] {
        notes.extend(story.render(&event(lost), Duration::ZERO).into_iter().filter_map(|show| match show {
            Show::Note(text) => Some(text),
            _ => None,
        }));
    }
    assert_eq!(
        notes,
        [
            "node 0 is lost: the agent ended its connection",
            "node 0: its machine may still exist: the agent ended its connection",
            "node 0 is replaced: machine m-2 at 10.0.0.2",
        ]
    );
    assert_eq!(story.rows(), []);
}

#[test]
fn a_node_lives_on_when_the_machine_that_it_had_before_is_gone() {
    let (node, address) = (NodeIndex(0), "10.0.0.2".to_owned());
    let [first, failed, second] = ["m-1", "m-2", "m-3"].map(MachineId::new);
    let launched =
        |machine: &MachineId| PoolEvent::NodeLaunched { node, machine: machine.clone(), address: address.clone() };
    let gone = |machine: &MachineId| event(PoolEvent::NodeGone { node, machine: machine.clone() });
    let ending = [Row::Text("node 0: ending".into())];
    for replaced in [false, true] {
        let mut story = story();
        let mut events = vec![
            launched(&first),
            PoolEvent::PoolReady { nodes: 1, workers: 1 },
            launched(&failed),
            PoolEvent::NodeFailed { node, error: Error::new(ErrorKind::Io, "it broke") },
            PoolEvent::NodeGone { node, machine: failed.clone() },
        ];
        if replaced {
            events.extend([
                launched(&second),
                PoolEvent::NodeReplaced { node, machine: second.clone(), address: address.clone() },
                PoolEvent::NodeGone { node, machine: first.clone() },
            ]);
        }
        events.push(PoolEvent::Draining);
        for item in events {
            story.render(&event(item), Duration::ZERO);
        }
        assert_eq!(story.rows(), ending);
        story.render(&gone(if replaced { &second } else { &first }), Duration::ZERO);
        assert_eq!(story.rows(), []);
    }
}

#[test]
fn many_nodes_share_a_row() {
    let mut story = story();
    for node in 0..20 {
        story.render(&event(PoolEvent::NodeLaunching { node: NodeIndex(node) }), Duration::ZERO);
    }
    let rows = story.rows();
    assert_eq!(rows.len(), 9);
    assert_eq!(rows[8], Row::Text("and 12 more nodes".into()));
}

#[tokio::test]
async fn the_end_of_the_events_ends_the_rendering() {
    let events = Events::new(futures_util::stream::iter([event(PoolEvent::Draining)]));
    tokio::time::timeout(Duration::from_secs(10), Terminal::auto().quiet(true).render(events)).await.unwrap();
}

/// A terminal that keeps what is written to it.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<String>>);

impl TermLike for Recorder {
    fn width(&self) -> u16 {
        80
    }
    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.lock().unwrap().push_str(text);
        Ok(())
    }
    fn clear_line(&self) -> io::Result<()> {
        self.write_str("<clear>")
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn rows_are_drawn_and_cleared() {
    let recorder = Recorder::default();
    let mut bars = Bars::new(ProgressDrawTarget::term_like(Box::new(recorder.clone())));
    let drawn = || recorder.0.lock().unwrap().clone();
    bars.set(&[Row::Text("node 0: environment".into())]);
    assert!(drawn().contains("node 0: environment"), "{}", drawn());
    bars.set(&[Row::Bar { text: "workers".into(), done: 1, total: 2 }]);
    let mut stage = Moving { bars, stdout: recorder.writer("out"), stderr: recorder.writer("err") };
    stage.show(&Show::Output(OutputStream::Stdout, "[rank 0] hi".into())).unwrap();
    stage.show(&Show::Step("never shown".into())).unwrap();
    let text = drawn();
    let (before, after) = text.split_once("out([rank 0] hi\n)").unwrap();
    assert!(before.contains("<clear>"), "{text}");
    assert!(after.contains("workers") && after.contains("1/2") && after.contains("[===="), "{text}");
    assert!(!text.contains("never shown"));
    stage.rows(&story());
    stage.show(&Show::Note("done".into())).unwrap();
    assert!(drawn().ends_with("<clear>err(done\n)"), "{}", drawn());
}

impl Recorder {
    fn writer(&self, name: &'static str) -> impl Write {
        struct Named(Recorder, &'static str);
        impl Write for Named {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let text = format!("{}({})", self.1, std::str::from_utf8(bytes).unwrap());
                self.0.write_str(&text)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        Named(self.clone(), name)
    }
}

#[test]
fn a_copy_of_files_has_a_row_while_it_runs_and_a_line_if_it_was_shown() {
    let mut story = story();
    let mut show = |number, bytes, state| {
        let mut transfer = Transfer::new(number, NodeIndex(1), "run\u{1b}[2J", 100 << 20, 1);
        (transfer.bytes, transfer.state) = (bytes, state);
        let shows = story.render(&event(PoolEvent::Transfer(transfer)), Duration::ZERO);
        (shows, story.rows())
    };
    let (shows, rows) = show(1, 50 << 20, TransferState::Running);
    assert!(shows.is_empty());
    assert!(
        matches!(&rows[..], [Row::Text(text)] if text.starts_with("run") && text.contains("50 of 100 MiB")),
        "{rows:?}"
    );
    assert!(!format!("{rows:?}").contains("\\u{1b}"), "{rows:?}");
    let (shows, rows) = show(1, 100 << 20, TransferState::Done);
    assert!(rows.is_empty());
    assert!(matches!(&shows[..], [Show::Step(text)] if text.contains("100 MiB in")), "{shows:?}");
    assert_eq!(show(2, 100 << 20, TransferState::Done), (vec![], vec![]), "it was too quick to be shown");
}
