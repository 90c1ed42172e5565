//! A process that does nothing.

use std::process::{Child, Command};

use super::Namespace;

/// A process in a namespace, ended when dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn inside(namespace: &Namespace) -> Self {
        Self(namespace.run(|| Command::new("sleep").arg("600").spawn()).expect("sleep, of coreutils"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
