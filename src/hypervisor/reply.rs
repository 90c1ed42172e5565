//! What a command answers.

/// The codes of replies, as ubridge numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Code {
    Ok = 100,
    ParseError = 200,
    UnknownModule = 201,
    UnknownCommand = 202,
    ParameterCount = 203,
    CannotCreate = 206,
    CannotDelete = 207,
    CannotStart = 209,
    CannotStop = 210,
    CannotRename = 213,
    NotFound = 214,
}

/// What becomes of the connection once the reply is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    GoOn,
    /// This connection is closed.
    Close,
    /// The program ends.
    Stop,
}

/// The answer to one command: lines of information, then the line that says how it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    information: Vec<String>,
    code: Code,
    text: String,
    pub(super) after: After,
}

impl Reply {
    /// It went well, and this is to be said of it.
    pub(super) fn ok(text: impl Into<String>) -> Self {
        Self::new(Code::Ok, text)
    }

    /// It went well, and there is no more to say.
    pub(super) fn done() -> Self {
        Self::ok("OK")
    }

    /// It failed.
    pub(super) fn failed(code: Code, text: impl Into<String>) -> Result<Self, Self> {
        Err(Self::new(code, text))
    }

    /// A reply with any code.
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { information: Vec::new(), code, text: text.into(), after: After::GoOn }
    }

    /// Puts a line of information before the last line.
    pub(super) fn with_line(mut self, line: impl Into<String>) -> Self {
        self.information.push(line.into());
        self
    }

    /// Puts lines of information before the last line.
    pub(super) fn with_lines(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.information.extend(lines);
        self
    }

    /// Ends the connection, or the program, after it.
    pub(super) fn then(mut self, after: After) -> Self {
        self.after = after;
        self
    }

    /// The lines as they are sent: contrary to SMTP, a blank follows the code where more lines come, and a
    /// hyphen in the last one.
    pub(super) fn encode(&self) -> String {
        let mut lines: String = self.information.iter().map(|line| format!("101 {line}\r\n")).collect();
        lines.push_str(&format!("{}-{}\r\n", self.code as u16, self.text));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_a_hyphen() {
        let reply = Reply::done().with_line("one").with_lines(["two".to_owned()]);
        assert_eq!(reply.encode(), "101 one\r\n101 two\r\n100-OK\r\n");
        assert_eq!(Reply::new(Code::CannotCreate, "no").encode(), "206-no\r\n");
    }
}
