//! Waiting for what may take longer than anybody wants to wait.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_channel::bounded;

/// Works that may be under way at once, those included that nobody waits for any more.
const MOST: usize = 4;

/// Bytes of stack for a work, of which only what is used takes memory: libpcap's compiler calls itself for each term of an
/// expression.
const STACK: usize = 256 << 20;

/// Has a thread do `work`, and returns what it made of it; `None` if that takes longer than `limit`, or too many others
/// still do. The thread then ends by itself, whenever that is.
pub(crate) fn wait<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
    if UNDER_WAY.fetch_add(1, Relaxed) >= MOST {
        UNDER_WAY.fetch_sub(1, Relaxed);
        return None;
    }
    let (sender, receiver) = bounded(1);
    let thread = std::thread::Builder::new().name("patience".to_owned()).stack_size(STACK);
    let started = thread.spawn(move || {
        let made = work();
        UNDER_WAY.fetch_sub(1, Relaxed);
        drop(sender.send(made));
    });
    if started.is_err() {
        UNDER_WAY.fetch_sub(1, Relaxed);
        return None;
    }
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_given_up() {
        let (release, held) = bounded::<()>(0);
        assert_eq!(wait(Duration::ZERO, move || held.recv()), None);
        drop(release);
        assert_eq!(wait(Duration::from_secs(60), || 7), Some(7));
    }
}
