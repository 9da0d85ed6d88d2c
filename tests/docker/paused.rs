//! A container is paused while the connections to it are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skyward::remote::{Container, Remote};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::common::scene::Folder;
use super::common::{PID, until};
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_paused_container_refuses_connections_temporarily_and_is_not_lost() {
    let image = engine::node_image();
    let way = Way::new();
    let pool = pool(Docker::new(image).engine(&way.url()), 1).start().await.unwrap();
    let container = container(&pool, 0);
    let pid: PendingCompute<u32> = python(PID).into();
    let before = pid.clone().run(&pool).await.unwrap();
    let mut events = pool.events();
    docker(&["pause", &container]);
    let refused = Container::new(&container).open("/skyward/node/none").await.err().unwrap();
    assert!(refused.message().contains("is paused"), "{refused}");
    assert!(refused.is_temporary());
    way.cut();
    let tried = way.tried.load(Ordering::Relaxed);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pid.run(&pool).await }
    });
    // The pool tries to reach both the agent and the worker, more than once.
    until("the pool tries again", || way.tried.load(Ordering::Relaxed) >= tried + 6).await;
    docker(&["unpause", &container]);
    let after = soon("the call is answered", waiting).await.unwrap().unwrap();
    assert_eq!(after, before, "the worker is the same");
    let id = pool.id().clone();
    ended(pool).await;
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else { continue };
        assert!(!matches!(&*event, PoolEvent::NodeLost { .. } | PoolEvent::WorkerExited { .. }), "{id}: {event:?}");
        if matches!(&*event, PoolEvent::Draining) {
            break;
        }
    }
}

/// A proxy to the engine that can cut all connections.
struct Way {
    folder: Folder,
    cuts: watch::Sender<()>,
    tried: Arc<AtomicUsize>,
}

impl Way {
    fn new() -> Self {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.path.join("s")).unwrap();
        let (cuts, tried) = (watch::Sender::new(()), Arc::new(AtomicUsize::new(0)));
        let (sender, count) = (cuts.clone(), Arc::clone(&tried));
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let mut cut = sender.subscribe();
                tokio::spawn(async move {
                    let mut far = UnixStream::connect("/var/run/docker.sock").await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { folder, cuts, tried }
    }

    fn url(&self) -> String {
        format!("unix://{}/s", self.folder.path.display())
    }

    fn cut(&self) {
        self.cuts.send(()).unwrap();
    }
}
