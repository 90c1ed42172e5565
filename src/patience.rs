//! Waiting for what may take longer than anybody wants to wait.
#![forbid(unsafe_code)]

use std::time::Duration;

use crossbeam_channel::bounded;

/// Has a thread do `work`, and returns what it made of it; `None` if that takes longer than `limit`. The thread then
/// ends by itself, whenever that is.
pub(crate) fn wait<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = bounded(1);
    let thread = std::thread::Builder::new().name("patience".to_owned());
    thread.spawn(move || drop(sender.send(work()))).ok()?;
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
