//! ubridge's own command line: one letter an option, in the manner of getopt.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::bind::{Bind, PortError};
use super::{file, hypervisor, offload};
use crate::hypervisor::Access;
use crate::nio::Mode;
use crate::number;
use crate::wire::offload::Features;

/// What `-h` prints.
pub(super) const USAGE: &str = "\
Usage: ubridge [options]

Runs the bridges of an INI file, or is driven by GNS3 over TCP.

  -h                        print this text
  -f <file>                 run the bridges of this INI file (default: ubridge.ini)
  -H [<address>:]<port>     listen here for commands, instead of running a file
  -e                        list the network devices
  -d <level>                1: a line for each frame; 2: its bytes, too
  -v                        print the version
  --allow-remote-control    with -H: accept commands from other machines
  --offload <list>          offloads to use, written as with the following

A single bridge in the foreground: rubridge bridge --help
";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Version,
    Help,
    ListDevices,
    Hypervisor(hypervisor::Options),
    File(file::Options),
}

/// What is wrong with the command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UsageError {
    #[error("invalid option -- '{0}'")]
    Unknown(char),
    #[error("option requires an argument -- '{0}'")]
    MissingArgument(char),
    #[error("unrecognized option '--{0}'")]
    UnknownLong(String),
    #[error("option '--{0}' requires an argument")]
    MissingLongArgument(String),
    #[error("-H: {0}")]
    Bind(#[from] PortError),
    #[error("--offload: {0}")]
    Offload(String),
}

/// Reads the words behind the program's name. The options -v, -h and -e count at once, whatever follows.
pub(super) fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Action, UsageError> {
    let mut given = Given::default();
    while let Some(word) = words.next() {
        let action = match word.as_bytes() {
            b"--" => break,
            [b'-', b'-', long @ ..] => given.long(OsStr::from_bytes(long), &mut words).map(|()| None),
            [b'-', letter, rest @ ..] => given.short(*letter, rest, &mut words),
            // In the way of GNU, options may follow.
            _ => Ok(None),
        };
        if let Some(action) = action? {
            return Ok(action);
        }
    }
    given.action()
}

/// The options that do not count at once.
struct Given {
    file: Option<OsString>,
    bind: Option<OsString>,
    debug: u8,
    access: Access,
    mode: Mode,
}

impl Default for Given {
    fn default() -> Self {
        Self { file: None, bind: None, debug: 0, access: Access::Local, mode: Mode::Offloads(Features::ALL) }
    }
}

impl Given {
    /// Takes an option of one letter. Its argument follows at once, or is the next word.
    fn short(
        &mut self,
        letter: u8,
        rest: &[u8],
        words: &mut impl Iterator<Item = OsString>,
    ) -> Result<Option<Action>, UsageError> {
        let mut argument = || {
            let attached = (!rest.is_empty()).then(|| OsString::from_vec(rest.to_vec()));
            attached.or_else(|| words.next()).ok_or_else(|| UsageError::MissingArgument(letter.into()))
        };
        // None of the options can be followed by another in one word: they end the program or take an argument.
        match letter {
            b'v' => return Ok(Some(Action::Version)),
            b'h' => return Ok(Some(Action::Help)),
            b'e' => return Ok(Some(Action::ListDevices)),
            b'f' => self.file = Some(argument()?),
            b'H' => self.bind = Some(argument()?),
            b'd' => {
                let level = number::leading(&argument()?.to_string_lossy());
                self.debug = u8::try_from(level.max(0)).unwrap_or(u8::MAX);
            }
            _ => return Err(UsageError::Unknown(first_character(letter, rest))),
        }
        Ok(None)
    }

    /// Takes an option of our own, without its hyphens.
    fn long(&mut self, option: &OsStr, words: &mut impl Iterator<Item = OsString>) -> Result<(), UsageError> {
        let option = option.to_string_lossy();
        let (name, attached) = option.split_once('=').map_or((&*option, None), |(name, value)| (name, Some(value)));
        match (name, attached) {
            ("allow-remote-control", None) => self.access = Access::Anybody,
            ("offload", attached) => {
                let list = attached.map(OsString::from).or_else(|| words.next());
                let list = list.ok_or_else(|| UsageError::MissingLongArgument(name.to_owned()))?;
                self.mode = offload::parse(&list.to_string_lossy()).map_err(UsageError::Offload)?;
            }
            _ => return Err(UsageError::UnknownLong(option.into_owned())),
        }
        Ok(())
    }

    /// What all of them together ask for. Where there is a place to listen on, a file does not count.
    fn action(self) -> Result<Action, UsageError> {
        let Self { file, bind, debug, access, mode } = self;
        if let Some(bind) = bind {
            let bind = Bind::parse(&bind.to_string_lossy())?;
            return Ok(Action::Hypervisor(hypervisor::Options { bind, access, debug, mode }));
        }
        let path = file.unwrap_or_else(|| "ubridge.ini".into()).into();
        Ok(Action::File(file::Options { path, debug, mode }))
    }
}

/// The character that begins with this byte.
fn first_character(byte: u8, rest: &[u8]) -> char {
    let bytes = [&[byte], rest].concat();
    String::from_utf8_lossy(&bytes).chars().next().unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Result<Action, UsageError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn file(path: &str, debug: u8) -> Result<Action, UsageError> {
        Ok(Action::File(file::Options { path: path.into(), debug, mode: Mode::Offloads(Features::ALL) }))
    }

    fn hypervisor(host: Option<&str>, port: u16, debug: u8) -> hypervisor::Options {
        let bind = Bind { host: host.map(str::to_owned), port };
        hypervisor::Options { bind, access: Access::Local, debug, mode: Mode::Offloads(Features::ALL) }
    }

    #[test]
    fn without_options_the_usual_file_is_run() {
        assert_eq!(read(""), file("ubridge.ini", 0));
        assert_eq!(read("-f lab.ini -d 1"), file("lab.ini", 1));
        assert_eq!(read("-flab.ini -d2"), file("lab.ini", 2));
        assert_eq!(read("-f one -f two"), file("two", 0));
        assert_eq!(read("-f --"), file("--", 0));
        let path = OsString::from_vec(b"\xff.ini".to_vec());
        let expected = Action::File(file::Options { path: path.clone().into(), debug: 0, mode: Mode::Plain });
        assert_eq!(parse(["-f".into(), path, "--offload=off".into()].into_iter()), Ok(expected));
    }

    #[test]
    fn with_a_port_a_file_does_not_count_and_the_last_port_does() {
        let local = hypervisor(Some("127.0.0.1"), 4299, 0);
        assert_eq!(read("-H 127.0.0.1:4299"), Ok(Action::Hypervisor(local)));
        let any = || Ok(Action::Hypervisor(hypervisor(None, 4299, 1)));
        assert_eq!(read("-H 70000 -H4299 -f lab.ini -d1"), any());
        assert_eq!(read("-f lab.ini -d1 -H :4299"), any());
        assert_eq!(read("-H 70000").unwrap_err().to_string(), "-H: port 70000 is not between 1 and 65535");
    }

    #[test]
    fn what_counts_at_once_does_so_in_order() {
        for (line, action) in [
            ("-v", Action::Version),
            ("-v -x", Action::Version),
            ("-vx", Action::Version),
            ("-h -v", Action::Help),
            ("-ed1", Action::ListDevices),
            ("-H 4299 -e", Action::ListDevices),
            ("-H 70000 word -v -H", Action::Version),
        ] {
            assert_eq!(read(line), Ok(action), "{line}");
        }
        assert_eq!(read("-x -v"), Err(UsageError::Unknown('x')));
        assert_eq!(read("-d -v"), file("ubridge.ini", 0));
    }

    #[test]
    fn words_that_are_no_options_are_ignored_and_two_hyphens_end_the_options() {
        assert_eq!(read("word - -d 1 word"), file("ubridge.ini", 1));
        assert_eq!(read("-d 1 -- -x -d 2"), file("ubridge.ini", 1));
    }

    #[test]
    fn our_own_options_have_long_names() {
        let mut expected = hypervisor(None, 4299, 0);
        expected.access = Access::Anybody;
        assert_eq!(read("--allow-remote-control -H 4299"), Ok(Action::Hypervisor(expected)));
        let mut expected = hypervisor(None, 4299, 0);
        expected.mode = Mode::Offloads(Features { merge: false, ..Features::ALL });
        assert_eq!(read("-H 4299 --offload no-merge"), Ok(Action::Hypervisor(expected)));
        assert_eq!(read("--offload=off -f a"), read("-f a --offload off"));
    }

    #[test]
    fn mistakes_are_told_as_getopt_does() {
        for (line, message) in [
            ("-x", "invalid option -- 'x'"),
            ("-d1 -é", "invalid option -- 'é'"),
            ("-xv", "invalid option -- 'x'"),
            ("-H", "option requires an argument -- 'H'"),
            ("-d 1 -f", "option requires an argument -- 'f'"),
            ("-d", "option requires an argument -- 'd'"),
            ("--hypervisor", "unrecognized option '--hypervisor'"),
            ("--allow-remote-control=yes", "unrecognized option '--allow-remote-control=yes'"),
            ("--offload", "option '--offload' requires an argument"),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), message, "{line}");
        }
        assert!(read("--offload=tso").unwrap_err().to_string().starts_with("--offload: 'tso' is none of"));
    }

    #[test]
    fn the_debug_level_has_a_range() {
        assert_eq!((read("-d 300"), read("-d -1")), (file("ubridge.ini", 255), file("ubridge.ini", 0)));
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(words: Vec<Vec<u8>>, letters in proptest::collection::vec("-[-vhefHd=x0-9:]{0,6}", 0..6)) {
            let _ = parse(words.into_iter().map(OsString::from_vec).chain(letters.into_iter().map(OsString::from)));
        }
    }
}
