//! What the kernel refused.

use std::io;

use crate::hypervisor::command::Answer;
use crate::hypervisor::reply::{Code, Reply};
use crate::lab::Lab;
use crate::sys::describe;

/// Says why, and answers with a text that does not.
pub(super) fn refused(lab: &Lab, error: &io::Error, code: Code, text: impl Into<String>) -> Answer {
    complain(lab, error);
    Reply::failed(code, text)
}

/// Says why.
pub(super) fn complain(lab: &Lab, error: &io::Error) {
    lab.console.stderr.say(&format!("Error configuring kernel: {}", describe(error)));
}
