//! Frames of equal size on their way to an egress that takes several in one call.

use crate::nio::{Frame, RunLimit};

/// Frames to be sent together: copies of frames that came one after another, or a whole run as it was received.
#[derive(Debug)]
pub(super) struct Run {
    limit: RunLimit,
    /// Copies; unused while the frames are those of the direction's buffer.
    copies: Vec<u8>,
    borrowed: bool,
    len: usize,
    /// The size of each frame but the last.
    size: usize,
    /// Bytes that are sent already.
    sent: usize,
    /// Nothing may follow: the last frame is shorter.
    closed: bool,
    /// They are to be sent one by one.
    singly: bool,
}

impl Run {
    pub(super) fn new(limit: RunLimit) -> Self {
        let copies = Vec::new();
        Self { limit, copies, borrowed: false, len: 0, size: 0, sent: 0, closed: false, singly: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the frames are those of the direction's buffer, which must then stay as it is.
    pub(super) fn is_borrowed(&self) -> bool {
        self.borrowed
    }

    /// Whether a frame of `len` bytes can be added.
    pub(super) fn takes(&self, len: usize) -> bool {
        let fits = self.frames() < self.limit.frames && self.len + len <= self.limit.bytes;
        self.is_empty() || (!self.borrowed && !self.closed && len <= self.size && fits)
    }

    /// Adds a copy of a frame that it takes.
    pub(super) fn push(&mut self, frame: &[u8]) {
        if self.is_empty() {
            self.size = frame.len();
        }
        self.closed |= frame.len() < self.size;
        self.copies.extend_from_slice(frame);
        self.len = self.copies.len();
    }

    /// Becomes the run that is in the buffer of the direction; it must be empty.
    pub(super) fn borrow(&mut self, frame: &Frame) {
        if let Some((bytes, size)) = frame.run() {
            (self.borrowed, self.len, self.size) = (true, bytes.len(), size);
        }
    }

    /// The bytes and the frame size for the next call.
    pub(super) fn next_call<'a>(&'a self, frame: &'a Frame) -> (&'a [u8], usize) {
        let bytes = if self.borrowed { frame.run().map_or(&[][..], |(bytes, _)| bytes) } else { &self.copies };
        let frames = if self.singly { 1 } else { self.limit.frames.min(self.limit.bytes / self.size.max(1)).max(1) };
        let end = (self.sent + frames * self.size).min(self.len);
        (bytes.get(self.sent..end).unwrap_or_default(), self.size)
    }

    /// `count` more bytes are sent, or given up.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.len {
            self.clear();
        }
    }

    pub(super) fn send_singly(&mut self) {
        self.singly = true;
    }

    /// Frames that are not sent yet.
    pub(super) fn frames(&self) -> usize {
        (self.len - self.sent).div_ceil(self.size.max(1))
    }

    pub(super) fn clear(&mut self) {
        self.copies.clear();
        (self.borrowed, self.len, self.size, self.sent) = (false, 0, 0, 0);
        (self.closed, self.singly) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_equal_size_go_together_and_a_shorter_one_ends_it() {
        let mut run = Run::new(RunLimit { frames: 4, bytes: 100 });
        assert!(run.takes(1000), "the first may be of any length");
        run.push(&[1; 20]);
        run.push(&[2; 20]);
        assert!(run.takes(20) && run.takes(7) && !run.takes(21));
        run.push(&[3; 7]);
        assert!(!run.takes(7));
        let frame = Frame::default();
        assert_eq!(run.next_call(&frame).0.len(), 47);
        run.send_singly();
        for (len, left) in [(20, 3), (20, 2), (7, 1)] {
            assert_eq!((run.next_call(&frame).0.len(), run.frames()), (len, left));
            run.advance(len);
        }
        assert!(run.is_empty());
        (0..4).for_each(|_| run.push(&[4; 20]));
        assert!(!run.takes(20), "as many as the egress takes");
        run.clear();
        (0..2).for_each(|_| run.push(&[5; 40]));
        assert!(!run.takes(40), "as many bytes as the egress takes");
    }

    #[test]
    fn a_run_of_the_buffer_is_sent_in_as_many_calls_as_it_needs() {
        let mut frame = Frame::default();
        frame.fill_run(95, 10).unwrap();
        let mut run = Run::new(RunLimit { frames: 4, bytes: 1000 });
        run.borrow(&frame);
        assert!(run.is_borrowed() && !run.takes(10) && run.frames() == 10);
        for len in [40, 40, 15] {
            assert_eq!(run.next_call(&frame).0.len(), len);
            run.advance(len);
        }
        assert!(run.is_empty() && !run.is_borrowed());
    }
}
