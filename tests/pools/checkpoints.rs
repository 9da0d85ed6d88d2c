//! Checkpoints with real Python: trainings whose workers, movers and machines end in the middle go on
//! from the last commit, and end as an undisturbed training.

use std::path::Path;
use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{limits, pool, processes_of, python, signal, soon, until};
use indoc::indoc;
use serde::Deserialize;
use skyward::checkpoint::Checkpoints;
use skyward::compute::PendingCompute;
use skyward::error::ErrorKind;
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::payload::RetryPolicy;
use skyward::plugin::plugin;
use skyward::pool::{Pool, PoolBuilder};
use skyward::storage::Storage;
use skyward::testkit::FakeStorage;

/// What a training has done.
#[derive(Debug, Deserialize, PartialEq)]
struct Trained {
    /// The step after which this try began; 0 without a checkpoint.
    after: i64,
    /// A number that every step changes, so that a step that is left out or done twice shows.
    state: u64,
    /// The steps at which this rank has saved in this try.
    saved: Vec<i64>,
}

/// The state after so many steps.
fn state_after(steps: u64) -> u64 {
    (1..=steps).fold(1, |state, step| (state * 31 + step) % 1_000_003)
}

/// Trains this many steps. At `crash_at`, a process that began anew ends without a word.
const TRAIN: &str = indoc! {"
    import json, os, pathlib
    import skyward as sky

    def f(steps, every, crash_at, keep):
        state, saved, after = 1, [], 0
        with sky.checkpoints('run', keep=keep) as ckpt:
            start = ckpt.latest()
            if start is not None:
                after, state = start.step, json.loads((start.path / 'state.json').read_text())
                assert start.meta == {'state': state}
            for step in range(after + 1, steps + 1):
                state = (state * 31 + step) % 1000003
                if ckpt.due(step, every=every):
                    with ckpt.save(step, meta={'state': state}) as folder:
                        (folder / 'state.json').write_text(json.dumps(state))
                        (folder / 'large.bin').write_bytes(bytes([step % 256]) * 3_000_000)
                        (folder / 'empty').mkdir()
                    saved.append(step)
                if step == crash_at and after < crash_at // 2:
                    ckpt.wait()
                    os._exit(1)
        return {'after': after, 'state': state, 'saved': saved}
"};

fn train(steps: u32, every: u32, crash_at: u32) -> PendingCompute<Trained> {
    let call: PendingCompute<Trained> =
        python(TRAIN).arg("steps", steps).arg("every", every).arg("crash_at", crash_at).arg("keep", 2).into();
    call.retry(RetryPolicy::default().crash(1))
}

fn stored(folder: &Folder) -> Storage {
    Storage::folder(folder.path.join("storage"))
}

async fn start(builder: PoolBuilder) -> Pool {
    soon("the pool starts", builder.start()).await.unwrap()
}

async fn end(pool: Pool) {
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
}

/// The files below a folder that are no folders, relative to it.
fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

async fn checkpoint_events(mut events: Events) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(item) = events.next().await {
        if let EventItem::Event(event) = item {
            match &*event {
                PoolEvent::CheckpointCommitted { step, .. } => found.push(format!("committed {step}")),
                PoolEvent::CheckpointResumed { step, .. } => found.push(format!("resumed {step:?}")),
                PoolEvent::CheckpointSkipped { step, .. } => found.push(format!("skipped {step:?}")),
                PoolEvent::CheckpointDropped { step, .. } => found.push(format!("dropped {step}")),
                _ => {}
            }
        }
    }
    found
}

#[tokio::test]
async fn a_training_goes_on_from_its_last_commit_after_a_crash_and_in_another_pool() {
    let folder = Folder::new();
    let storage = stored(&folder);
    let first = start(pool(1).storage(storage.clone())).await;
    let events = tokio::spawn(checkpoint_events(first.events()));
    let trained = soon("the training ends", train(20, 5, 12).run(&first)).await.unwrap();
    assert_eq!(trained, Trained { after: 10, state: state_after(20), saved: vec![15, 20] });
    end(first).await;
    let events = events.await.unwrap();
    assert_eq!((&*events[0], &*events[events.len() - 1]), ("resumed None", "committed 20"), "{events:?}");
    assert!(events.contains(&"resumed Some(10)".to_owned()), "{events:?}");

    let kept = Checkpoints::open(&storage, "run").unwrap();
    let list = kept.list().await.unwrap();
    assert_eq!(list.iter().map(|each| each.step()).collect::<Vec<_>>(), [15, 20], "two are kept");
    let latest = kept.latest().await.unwrap().unwrap();
    let target = folder.path.join("latest");
    latest.save_to(&target).await.unwrap();
    assert_eq!(std::fs::read_to_string(target.join("state.json")).unwrap(), state_after(20).to_string());
    assert_eq!(std::fs::read(target.join("large.bin")).unwrap(), vec![20; 3_000_000]);
    assert!(target.join("empty").is_dir());

    // The second pool begins at once: the first one has given the name back.
    let second = start(pool(1).storage(storage)).await;
    let trained = soon("the training ends", train(30, 5, 0).run(&second)).await.unwrap();
    assert_eq!(trained, Trained { after: 20, state: state_after(30), saved: vec![25, 30] });
    end(second).await;
    let left = files_below(&folder.path.join("storage"));
    assert!(left.iter().all(|path| path.contains("/commits/") || path.contains("/data/")), "{left:?}");
    let saves: std::collections::BTreeSet<&str> =
        left.iter().filter_map(|path| path.split("/data/").nth(1)?.split('/').next()).collect();
    assert_eq!(saves.len(), 2, "{left:?}");
}

#[tokio::test]
async fn a_lost_machine_costs_the_steps_since_the_last_commit() {
    let folder = Folder::new();
    let text = indoc! {"
        import os, pathlib, signal, time
        import skyward as sky

        def f(marker):
            with sky.checkpoints('run') as ckpt:
                start = ckpt.latest()
                after = start.step if start else 0
                for step in range(after + 1, 11):
                    if ckpt.due(step, every=4):
                        with ckpt.save(step) as folder:
                            (folder / 'step').write_text(str(step))
                    if step == 6 and not os.path.exists(marker):
                        ckpt.wait()
                        pathlib.Path(marker).touch()
                        os.kill(os.getppid(), signal.SIGKILL)
                        time.sleep(600)
            return [after, int((start.path / 'step').read_text()) if start else 0]
    "};
    let pool = start(pool(1).storage(stored(&folder))).await;
    let call: PendingCompute<(i64, i64)> = python(text).arg("marker", folder.gate("lost")).into();
    assert_eq!(soon("the training ends", call.run(&pool)).await.unwrap(), (4, 4));
    end(pool).await;
}

/// Two ranks of a world. Rank 0 saves when its clock says so; the others agree on its step.
const GANG: &str = indoc! {"
    import os, time
    import skyward as sky

    def f(steps, crash_at, folder):
        info = sky.instance_info()
        rank, saved, after = info.rank, [], 0
        with sky.checkpoints('gang') as ckpt:
            start = ckpt.latest()
            if start is not None:
                after = start.step
                for each in range(info.total_workers):
                    assert (start.path / f'rank{each}').read_text() == f'{after} of {each}'
            for step in range(after + 1, steps + 1):
                # The ranks go in lockstep, as by a collective.
                open(f'{folder}/{info.generation}.{step}.{rank}', 'w').close()
                for other in range(info.total_workers):
                    while not os.path.exists(f'{folder}/{info.generation}.{step}.{other}'):
                        time.sleep(0.001)
                if ckpt.due(step, seconds=0.05):
                    with ckpt.save(step) as target:
                        (target / f'rank{rank}').write_text(f'{step} of {rank}')
                        (target / 'shared').write_text(str(step))
                    saved.append(step)
                    if crash_at and after == 0 and len(saved) == crash_at and rank == 1:
                        ckpt.wait()
                        os._exit(1)
                time.sleep(0.005)
        return {'after': after, 'state': 0, 'saved': saved}
"};

fn gang(steps: u32, crash_at: u32, folder: &Folder) -> PendingCompute<Trained> {
    let call: PendingCompute<Trained> = python(GANG)
        .arg("steps", steps)
        .arg("crash_at", crash_at)
        .arg("folder", folder.path.to_str().unwrap().to_owned())
        .into();
    call.retry(RetryPolicy::default().crash(1))
}

#[tokio::test]
async fn ranks_agree_on_the_steps_at_which_they_save_and_get_the_files_of_all() {
    let folder = Folder::new();
    let storage = stored(&folder);
    let world = plugin("world").joins_world();
    let pool = start(pool(2).plugin(world).storage(storage.clone())).await;
    let trained = soon("the training ends", gang(60, 2, &folder).broadcast(&pool)).await.unwrap();
    let [first, second] = &*trained else { panic!("two ranks") };
    assert_eq!(first, second, "all ranks save at the same steps");
    assert!(first.after > 0 && !first.saved.is_empty(), "{first:?}");
    end(pool).await;
    let latest = Checkpoints::open(&storage, "gang").unwrap().latest().await.unwrap().unwrap();
    assert_eq!(latest.step(), *first.saved.last().unwrap());
}

#[tokio::test]
async fn a_mover_that_ends_delays_commits_and_loses_none() {
    let folder = Folder::new();
    let text = indoc! {"
        import os, time
        import skyward as sky

        def f(folder):
            with sky.checkpoints('run') as ckpt:
                for step in range(1, 4):
                    with ckpt.save(step) as target:
                        (target / 'step').write_text(str(step))
                    open(f'{folder}/saved{step}', 'w').close()
                    while not os.path.exists(f'{folder}/go{step}'):
                        time.sleep(0.002)
                    ckpt.wait()
            return os.getpid()
    "};
    let storage = stored(&folder);
    let pool = start(pool(1).storage(storage.clone())).await;
    let call: PendingCompute<u32> = python(text).arg("folder", folder.path.to_str().unwrap().to_owned()).into();
    let ends = async {
        for step in 1..=3 {
            until("the step is saved", || folder.path.join(format!("saved{step}")).exists()).await;
            for process in processes_of(pool.id()) {
                if process.contains("skyward.mover") {
                    let pid = process.split('"').nth(1).unwrap().parse().unwrap();
                    signal("KILL", pid).await;
                }
            }
            folder.open(&format!("go{step}"));
        }
    };
    let (done, ()) = tokio::join!(soon("the task ends", call.run(&pool)), ends);
    done.unwrap();
    end(pool).await;
    assert_eq!(Checkpoints::open(&storage, "run").unwrap().latest().await.unwrap().unwrap().step(), 3);
}

#[tokio::test]
async fn a_pool_without_a_storage_says_so_at_once() {
    let pool = start(pool(1)).await;
    let error = soon("the task fails", train(3, 1, 0).run(&pool)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Raised, "{error}");
    let exception = error.exception().unwrap();
    assert!(exception.type_name.ends_with("CheckpointError"), "{exception:?}");
    assert!(exception.message.contains(".storage("), "{exception:?}");
    end(pool).await;
}

#[tokio::test]
async fn files_of_two_ranks_with_one_name_and_other_content_are_an_error() {
    let folder = Folder::new();
    let text = indoc! {"
        import skyward as sky

        def f():
            with sky.checkpoints('clash') as ckpt:
                with ckpt.save(1) as target:
                    (target / 'weights').write_text(str(sky.instance_info().rank))
    "};
    let pool = start(pool(2).plugin(plugin("world").joins_world()).storage(stored(&folder))).await;
    let call: PendingCompute<()> = python(text).into();
    let error = soon("the task fails", call.broadcast(&pool)).await.unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains("weights") && message.contains("CheckpointError"), "{message}");
    end(pool).await;
}

#[tokio::test]
async fn one_name_serves_one_task_at_a_time() {
    let folder = Folder::new();
    let text = indoc! {"
        import os, time
        import skyward as sky

        def f(folder):
            with sky.checkpoints('run') as ckpt:
                start = ckpt.latest()
                step = 1 if start is None else start.step + 1
                with ckpt.save(step) as target:
                    (target / 'step').write_text(str(step))
            return step
    "};
    let mut limits = limits();
    limits.grace = Duration::from_millis(300);
    let pool = start(Pool::builder().nodes(2).limits(limits).storage(stored(&folder))).await;
    let call = || -> PendingCompute<i64> { python(text).arg("folder", "").into() };
    // The second one waits until the first has ended, and begins with its commit.
    let (first, second) = soon("both end", async { tokio::join!(call().run(&pool), call().run(&pool)) }).await;
    let mut steps = [first.unwrap(), second.unwrap()];
    steps.sort_unstable();
    assert_eq!(steps, [1, 2]);
    end(pool).await;
}

#[tokio::test]
async fn a_block_may_follow_another_of_the_same_name() {
    let folder = Folder::new();
    let text = indoc! {"
        import time
        import skyward as sky

        def f():
            found, rank = [], sky.instance_info().rank
            # One rank has left the first block before the other comes.
            time.sleep(rank * 0.5)
            with sky.checkpoints('run') as ckpt:
                assert ckpt.latest() is None
            for _ in range(3):
                with sky.checkpoints('run') as ckpt:
                    start = ckpt.latest()
                    step = 1 if start is None else start.step + 1
                    found.append(step)
                    with ckpt.save(step) as target:
                        (target / f'rank{rank}').write_text(str(step))
            return found
    "};
    let pool = start(pool(2).plugin(plugin("world").joins_world()).storage(stored(&folder))).await;
    let call: PendingCompute<Vec<i64>> = python(text).into();
    assert_eq!(soon("both ranks", call.broadcast(&pool)).await.unwrap(), [[1, 2, 3], [1, 2, 3]]);
    end(pool).await;
}

#[tokio::test]
async fn a_rank_whose_mover_was_replaced_is_asked_for_its_step() {
    let folder = Folder::new();
    let text = indoc! {"
        import os, time
        import skyward as sky

        def f(folder):
            rank, saved = sky.instance_info().rank, 0
            with sky.checkpoints('run') as ckpt:
                open(f'{folder}/open{rank}', 'w').close()
                while not os.path.exists(f'{folder}/go'):
                    time.sleep(0.002)
                for step in range(1, 100_000):
                    if ckpt.due(step, seconds=0.2 if rank == 0 else None):
                        with ckpt.save(step) as target:
                            (target / f'rank{rank}').write_text(str(step))
                        saved = step
                        break
                    time.sleep(0.01)
            return saved
    "};
    let pool = start(pool(2).plugin(plugin("world").joins_world()).storage(stored(&folder))).await;
    let call: PendingCompute<i64> = python(text).arg("folder", folder.path.to_str().unwrap().to_owned()).into();
    let replace = async {
        until("both ranks are there", || ["open0", "open1"].iter().all(|it| folder.path.join(it).exists())).await;
        for process in processes_of(pool.id()) {
            if process.contains("skyward.mover") {
                signal("KILL", process.split('"').nth(1).unwrap().parse().unwrap()).await;
            }
        }
        folder.open("go");
    };
    let (saved, ()) = tokio::join!(soon("both ranks save", call.broadcast(&pool)), replace);
    let saved = saved.unwrap();
    assert!(saved[0] > 0 && saved[0] == saved[1], "{saved:?}");
    end(pool).await;
}

#[tokio::test]
async fn a_torn_checkpoint_is_skipped_and_a_training_never_starts_from_scratch_over_torn_ones() {
    let objects = FakeStorage::new(1);
    let storage = Storage::of(objects.clone());
    let first = start(pool(1).storage(storage.clone())).await;
    soon("the training ends", train(10, 5, 0).run(&first)).await.unwrap();
    end(first).await;
    // Removes what the last commit has.
    let tear = || {
        let texts = objects.objects().into_iter().filter(|path| path.to_string().contains("/commits/"));
        let texts: Vec<String> =
            texts.map(|path| String::from_utf8(objects.content(&path).unwrap().to_vec()).unwrap()).collect();
        let parts = objects.objects().into_iter().filter(|path| path.to_string().contains("/data/"));
        let parts: Vec<_> = parts.map(|path| (path.to_string().split('/').nth(3).unwrap().to_owned(), path)).collect();
        let last = texts.iter().rev().find_map(|text| parts.iter().find(|(save, _)| text.contains(save.as_str())));
        objects.tear(&last.unwrap().1, None);
    };
    tear();
    let second = start(pool(1).storage(storage.clone())).await;
    let events = tokio::spawn(checkpoint_events(second.events()));
    let trained = soon("the training ends", train(7, 100, 0).run(&second)).await.unwrap();
    assert_eq!(trained, Trained { after: 5, state: state_after(7), saved: vec![] });
    end(second).await;
    assert_eq!(events.await.unwrap(), ["skipped Some(10)", "resumed Some(5)"]);

    tear();
    let third = start(pool(1).storage(storage)).await;
    let error = soon("the task fails", train(7, 100, 0).run(&third)).await.unwrap_err();
    let exception = error.exception().unwrap();
    assert!(exception.type_name.ends_with("CheckpointError") && exception.message.contains("run"), "{exception:?}");
    end(third).await;
}

#[tokio::test]
async fn a_storage_that_overwrites_is_refused_before_there_is_a_machine() {
    let storage = Storage::of(FakeStorage::new(1).ignoring_conditions());
    let error = soon("the start fails", pool(1).storage(storage).start()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    assert!(error.hint().is_some(), "{error}");
}

#[tokio::test]
async fn answers_of_the_storage_that_are_lost_change_nothing() {
    let objects = FakeStorage::new(1).losing_replies(4);
    let storage = Storage::of(objects);
    let pool = start(pool(1).storage(storage.clone())).await;
    let trained = soon("the training ends", train(30, 1, 0).run(&pool)).await.unwrap();
    assert_eq!(trained.state, state_after(30));
    end(pool).await;
    assert_eq!(Checkpoints::open(&storage, "run").unwrap().latest().await.unwrap().unwrap().step(), 30);
}
