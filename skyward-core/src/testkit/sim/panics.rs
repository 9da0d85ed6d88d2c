//! Records panics. The panic of a task of the runtime ends that task alone, so that the simulation
//! would go on without it.

use std::cell::RefCell;
use std::sync::Once;

/// Forgets the panics of this thread, and records further ones.
pub(super) fn record() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // The storage is gone while the thread ends.
            let _ = FIRST.try_with(|first| {
                first.borrow_mut().get_or_insert_with(|| panic.to_string());
            });
            before(panic);
        }));
    });
    FIRST.take();
}

/// The first panic of this thread since [`record`].
pub(super) fn first() -> Option<String> {
    FIRST.with_borrow(Clone::clone)
}

thread_local! {
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_panic_of_a_task_is_recorded() {
        record();
        assert_eq!(first(), None);
        let task = tokio::spawn(async { panic!("a defect") });
        assert!(task.await.is_err());
        assert!(first().is_some_and(|panic| panic.contains("a defect")));
        record();
        assert_eq!(first(), None);
    }
}
