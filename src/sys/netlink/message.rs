//! rtnetlink's messages about links, as bytes (netlink(7), rtnetlink(7)). No I/O.
#![forbid(unsafe_code)]

use std::io;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;
/// Length of `struct rtattr`.
const ATTRIBUTE_HEADER: usize = 4;
/// What messages and attributes are padded to.
const ALIGNMENT: usize = 4;

/// What follows the header of a request: attributes, behind a link's header where they are a link's.
#[derive(Debug)]
pub(super) struct Body(Vec<u8>);

impl Body {
    /// Attributes alone, to be nested.
    pub(super) fn nested() -> Self {
        Self(Vec::new())
    }

    /// The link of this index, or where that is 0 one that the attributes tell. These `IFF_` flags are
    /// switched on, and all others left.
    pub(super) fn link(index: u32, flags: u32) -> Self {
        let family_and_type = [0u8; 4];
        let (index, flags) = (index.to_ne_bytes(), flags.to_ne_bytes());
        Self([family_and_type, index, flags, flags].concat())
    }

    /// Appends an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "values are numbers, names, and a few of them nested")]
        let length = (ATTRIBUTE_HEADER + value.len()) as u16;
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// Appends an attribute that is a number.
    pub(super) fn with_number(self, kind: u16, number: u32) -> Self {
        self.with(kind, &number.to_ne_bytes())
    }

    /// Appends an attribute that is a text.
    pub(super) fn with_text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that consists of others.
    pub(super) fn with_nested(self, kind: u16, attributes: &Self) -> Self {
        self.with(kind, &attributes.0)
    }

    /// The whole message.
    pub(super) fn request(&self, kind: u16, flags: libc::c_int, sequence: u32) -> Vec<u8> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nlmsg_flags has 16 bits")]
        let flags = (libc::NLM_F_REQUEST | flags) as u16;
        #[expect(clippy::cast_possible_truncation, reason = "it is short, as its attributes are")]
        let length = (HEADER + self.0.len()) as u32;
        let any_port = 0u32;
        let mut bytes = Vec::with_capacity(HEADER + self.0.len());
        bytes.extend(length.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(any_port.to_ne_bytes());
        bytes.extend(&self.0);
        bytes
    }
}

/// What the kernel answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is done.
    Done,
    /// The link that was asked for.
    Link(Link),
}

/// What the kernel says of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// What it is, as `veth` or `bridge`, where the kernel tells: of a physical one it does not.
    pub kind: Option<String>,
    /// The index of the bridge or bond that it is a port of.
    pub master: Option<u32>,
}

/// Finds in a datagram the answer to the request `sequence`; there may be others in it, or none.
///
/// # Errors
/// The one that the kernel answered; `InvalidData` where it cannot be understood.
pub(super) fn answer(datagram: &[u8], sequence: u32) -> io::Result<Option<Answer>> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = Message::take(&mut rest).ok_or(io::ErrorKind::InvalidData)?;
        if message.sequence == sequence {
            return message.answer().map(Some);
        }
    }
    Ok(None)
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let (length, kind, sequence) = (number(rest, 0)?, short(rest, 4)?, number(rest, 8)?);
        let payload = take(rest, HEADER, usize::try_from(length).ok()?)?;
        Some(Self { kind, sequence, payload })
    }

    fn answer(&self) -> io::Result<Answer> {
        let understood = match self.kind {
            libc::RTM_NEWLINK => Link::parse(self.payload).map(Answer::Link),
            kind if libc::c_int::from(kind) == libc::NLMSG_ERROR => match number(self.payload, 0) {
                Some(0) => Some(Answer::Done),
                Some(code) => {
                    let negated = i32::from_ne_bytes(code.to_ne_bytes());
                    return Err(io::Error::from_raw_os_error(negated.wrapping_neg()));
                }
                None => None,
            },
            _ => None,
        };
        understood.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl Link {
    fn parse(payload: &[u8]) -> Option<Self> {
        let of_link = payload.get(LINK_HEADER..)?;
        let of_kind = attribute(of_link, libc::IFLA_LINKINFO).unwrap_or_default();
        Some(Self {
            index: number(payload, 4)?,
            kind: attribute(of_kind, libc::IFLA_INFO_KIND).map(text),
            master: attribute(of_link, libc::IFLA_MASTER).and_then(|value| number(value, 0)),
        })
    }
}

/// The value of the attribute `wanted`.
fn attribute(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    /// The two highest bits of the kind are flags.
    const KIND: u16 = 0x3fff;
    let mut rest = attributes;
    loop {
        let (length, kind) = (short(rest, 0)?, short(rest, 2)?);
        let value = take(&mut rest, ATTRIBUTE_HEADER, length.into())?;
        if kind & KIND == wanted {
            return Some(value);
        }
    }
}

/// Takes a header and its payload, together `length` bytes, and the padding behind; returns the payload.
fn take<'a>(rest: &mut &'a [u8], header: usize, length: usize) -> Option<&'a [u8]> {
    let payload = rest.get(header..length)?;
    // The last one may come without its padding.
    *rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    Some(payload)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message that answers the request 7.
    fn message(kind: u16, body: &Body) -> Vec<u8> {
        body.request(kind, 0, 7)
    }

    fn refusal(code: i32) -> Vec<u8> {
        message(2, &Body(code.to_ne_bytes().to_vec()))
    }

    fn link() -> Vec<u8> {
        let info = Body::nested().with_text(libc::IFLA_INFO_KIND, "veth").with(libc::IFLA_INFO_DATA, &[1; 9]);
        let body = Body::link(5, 0)
            .with_text(libc::IFLA_IFNAME, "rb0")
            .with_number(libc::IFLA_MASTER, 9)
            .with_nested(libc::IFLA_LINKINFO | 0x8000, &info);
        message(libc::RTM_NEWLINK, &body)
    }

    #[test]
    fn a_request_is_laid_out_as_the_kernel_wants_it() {
        let inner = Body::nested().with_text(1, "veth");
        let body = Body::link(3, 1).with_number(19, 77).with_nested(18, &inner);
        let mut expected = Vec::new();
        expected.extend(56u32.to_ne_bytes());
        for half in [16u16, 5] {
            expected.extend(half.to_ne_bytes());
        }
        // Sequence and port; family and type, index, flags and their mask.
        for word in [2u32, 0, 0, 3, 1, 1] {
            expected.extend(word.to_ne_bytes());
        }
        for (length, kind, value) in [(8u16, 19u16, &77u32.to_ne_bytes()[..]), (16, 18, &[]), (9, 1, b"veth\0\0\0\0")] {
            expected.extend(length.to_ne_bytes());
            expected.extend(kind.to_ne_bytes());
            expected.extend(value);
        }
        assert_eq!(body.request(16, 4, 2), expected);
    }

    #[test]
    fn answers_are_understood() {
        assert_eq!(answer(&refusal(0), 7).unwrap(), Some(Answer::Done));
        assert_eq!(answer(&refusal(-libc::EPERM), 7).unwrap_err().raw_os_error(), Some(libc::EPERM));
        let expected = Link { index: 5, kind: Some("veth".to_owned()), master: Some(9) };
        assert_eq!(answer(&link(), 7).unwrap(), Some(Answer::Link(expected)));
        let bare = Link { index: 5, kind: None, master: None };
        assert_eq!(answer(&message(libc::RTM_NEWLINK, &Body::link(5, 0)), 7).unwrap(), Some(Answer::Link(bare)));
    }

    #[test]
    fn answers_to_other_requests_are_passed_over() {
        assert_eq!(answer(&link(), 8).unwrap(), None);
        assert_eq!(answer(&[], 7).unwrap(), None);
        let another = Body(0i32.to_ne_bytes().to_vec()).request(2, 0, 6);
        let both = [another, refusal(-libc::ESRCH)].concat();
        assert_eq!(answer(&both, 7).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn what_is_no_answer_is_invalid() {
        let only_a_header = message(2, &Body::nested());
        let unknown = message(99, &Body::link(1, 0));
        for bytes in [&only_a_header, &unknown] {
            assert_eq!(answer(bytes, 7).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        for code in [1, i32::MAX, i32::MIN] {
            answer(&refusal(code), 7).unwrap_err();
        }
    }

    #[test]
    fn a_short_or_hostile_answer_is_no_panic() {
        let whole = link();
        for end in 1..whole.len() {
            assert_eq!(answer(&whole[..end], 7).unwrap_err().kind(), io::ErrorKind::InvalidData, "{end}");
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut hostile = whole.clone();
                hostile[at] = byte;
                let _ = answer(&hostile, 7);
            }
        }
    }
}
