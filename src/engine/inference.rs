//! Frames that come without metadata: where it takes some to forward them, they are inferred.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::nio::{Frame, Metadata};
use crate::wire::flows::FlowTable;
use crate::wire::headers::Headers;
use crate::wire::infer::infer;
use crate::wire::offload::Offload;
use crate::wire::{ETHERNET_LEN, VLAN_TAG_LEN};

/// The longest SYN: an Ethernet header with two tags, IPv6 and TCP with all their options that are in use.
const LONGEST_SYN: usize = 160;

/// What a wire takes on top of its MTU, with room for two tags. Hardware takes as much, tagged or not.
const LONGEST_HEADER: usize = ETHERNET_LEN + 2 * VLAN_TAG_LEN;

/// Infers metadata for the frames of one direction, and learns from them for the other.
#[derive(Debug, Clone)]
pub(super) struct Inference {
    /// What is known of the flows, from both directions. They take turns, and a turn is short.
    flows: Arc<Mutex<FlowTable>>,
    inferred: Inferred,
}

/// For which frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inferred {
    /// None.
    None,
    /// Those too long for packets of so many bytes.
    TooLong(u32),
    /// All: those of a wire with packets of at most `own` bytes, on their way to one for `fitting`.
    All { own: u32, fitting: u32 },
}

impl Inferred {
    /// What is to be inferred of frames of which so much is told on their way to an egress that takes packets of `mtu` bytes.
    fn of(told: Metadata, mtu: Option<u32>) -> Self {
        match (told, mtu) {
            (Metadata::Told, _) | (Metadata::Needless, None) => Self::None,
            (Metadata::Needless, Some(mtu)) => Self::TooLong(mtu),
            (Metadata::Missing { mtu: own }, mtu) => Self::All { own, fitting: mtu.map_or(own, |mtu| mtu.min(own)) },
        }
    }
}

impl Inference {
    /// For both directions of a link: what is told of each one's frames, and the MTU of its egress. None, where
    /// nothing is to be inferred in either.
    pub(super) fn of(directions: [(Metadata, Option<u32>); 2]) -> [Option<Self>; 2] {
        let inferred = directions.map(|(told, mtu)| Inferred::of(told, mtu));
        if inferred == [Inferred::None; 2] {
            return [None, None];
        }
        let flows = Arc::default();
        inferred.map(|inferred| Some(Self { flows: Arc::clone(&flows), inferred }))
    }

    /// What becomes of `before` where its ingress tells less than it did. (A plan heeds the egress's MTU in any case.)
    pub(super) fn renewed(before: Option<Self>, told: Metadata) -> Option<Self> {
        match Inferred::of(told, None) {
            Inferred::None => before,
            inferred => Some(Self { flows: before.map(|before| before.flows).unwrap_or_default(), inferred }),
        }
    }

    /// Infers the metadata of a frame that came without any; returns whether it can be forwarded: not, where it is too long
    /// for the wire of an ingress that hands over merged frames, and nobody knows how to cut it.
    #[inline]
    pub(super) fn describe(&self, frame: &mut Frame) -> bool {
        let told = frame.offload;
        let bytes = frame.bytes();
        let (mtu, long) = match self.inferred {
            Inferred::All { own, fitting } => (fitting, bytes.len() > own as usize + LONGEST_HEADER),
            Inferred::TooLong(mtu) if is_longer(bytes, mtu) => (mtu, false),
            _ => {
                self.learn(bytes);
                return true;
            }
        };
        if told == Offload::default() {
            frame.offload = infer(bytes, &mut self.flows(), mtu);
        }
        !long || frame.offload.super_frame.is_some()
    }

    /// Learns from a SYN.
    fn learn(&self, frame: &[u8]) {
        if frame.len() > LONGEST_SYN {
            return;
        }
        if let Ok(headers) = Headers::parse(frame) {
            if FlowTable::is_syn(frame, &headers) {
                self.flows().learn_syn(frame, &headers);
            }
        }
    }

    fn flows(&self) -> MutexGuard<'_, FlowTable> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_longer(frame: &[u8], mtu: u32) -> bool {
    let tag = if frame.get(12..14) == Some(&[0x81, 0x00]) { VLAN_TAG_LEN } else { 0 };
    frame.len() > mtu as usize + ETHERNET_LEN + tag
}
