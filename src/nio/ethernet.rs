//! `ethernet`: a network interface as `linux_raw`, with a filter that decides which frames it receives.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Cause, Ends, Frame, Identity, Ingress, Kind, Mode, Nio, ReceiveError, linux_raw};
use crate::filter::{Bpf, FilterError};

/// See the module's documentation.
pub(super) const KIND: Kind = Kind { name: "ethernet", arguments: "<interface>", open };

/// Which frames a NIO receives: all, or those that match an expression in the language of libpcap.
#[derive(Debug, Default)]
pub struct ReceiveFilter(Mutex<Option<Bpf>>);

#[derive(Debug)]
struct EthernetIngress {
    inner: Box<dyn Ingress>,
    filter: Arc<ReceiveFilter>,
}

/// Opens the interface `name`, with a filter that lets all pass.
///
/// # Errors
/// [`Cause`], which names the cure.
pub fn open(name: &str, mode: Mode) -> Result<Nio, Cause> {
    let Ends { ingress, egress } = linux_raw::open_ends(name, mode)?;
    let filter = Arc::<ReceiveFilter>::default();
    let ingress = EthernetIngress { inner: ingress, filter: Arc::clone(&filter) };
    let identity = Identity { receive_filter: Some(filter), ..Identity::new(&KIND, name) };
    Ok(Nio { identity, ends: Ends { ingress: Box::new(ingress), egress } })
}

impl ReceiveFilter {
    /// Lets only frames pass that match `expression`, or all; from the next frame on.
    ///
    /// # Errors
    /// Where the expression cannot be compiled; nothing is changed then.
    pub fn set(&self, expression: Option<&str>) -> Result<(), FilterError> {
        let program = expression.map(|expression| Bpf::compile(expression, None)).transpose()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = program;
        Ok(())
    }

    fn wants(&self, frame: &[u8]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(|program| program.matches(frame))
    }
}

impl Ingress for EthernetIngress {
    fn fd(&self) -> RawFd {
        self.inner.fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        self.inner.receive(frame)?;
        if self.filter.wants(frame.bytes()) { Ok(()) } else { Err(ReceiveError::Unwanted) }
    }

    fn take_overflow(&mut self) -> u64 {
        self.inner.take_overflow()
    }

    fn pause(&mut self) {
        self.inner.pause();
    }

    fn resume(&mut self) {
        self.inner.resume();
    }
}
