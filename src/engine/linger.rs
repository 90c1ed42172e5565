//! Looking again before sleeping: waking a thread that sleeps costs its waker more than a frame costs us.

use std::time::{Duration, Instant};

/// How long a worker looks for more work before it sleeps: as long as it has just worked, at most
/// [`Linger::LONGEST`]. So an idle worker sleeps at once, and a busy one at most doubles its share of a CPU,
/// which it offers to others at every look.
#[derive(Debug)]
pub(super) struct Linger {
    woken: Instant,
    /// Set once there is nothing left to do.
    until: Option<Instant>,
}

impl Linger {
    /// About what it takes to wake a thread on another CPU of a virtual machine, and some more.
    const LONGEST: Duration = Duration::from_micros(50);

    pub(super) fn new() -> Self {
        Self { woken: Instant::now(), until: None }
    }

    /// There is work to do.
    pub(super) fn work(&mut self) {
        if self.until.take().is_some() {
            self.woken = Instant::now();
        }
    }

    /// There is nothing left to do: whether to look again rather than sleep.
    pub(super) fn look_again(&mut self) -> bool {
        let now = Instant::now();
        let worked = now.duration_since(self.woken).min(Self::LONGEST);
        let again = now < *self.until.get_or_insert(now + worked);
        if again {
            std::thread::yield_now();
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_and_starts_anew_with_the_next_work() {
        let mut linger = Linger::new();
        linger.woken = Instant::now() - Duration::from_secs(1);
        assert!(linger.look_again(), "after a second's work");
        assert!(linger.until.is_some_and(|until| until < Instant::now() + Linger::LONGEST));
        while linger.look_again() {}
        assert!(!linger.look_again(), "once over it stays over");
        linger.work();
        assert!(linger.until.is_none());
        linger.woken = Instant::now() + Duration::from_secs(60);
        assert!(!linger.look_again(), "no work, no lingering");
    }
}
