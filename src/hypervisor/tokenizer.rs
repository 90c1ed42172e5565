//! From the bytes of a connection to the words of its lines.

/// The longest line, in bytes.
pub(super) const LONGEST_LINE: usize = 64 << 10;

/// A line that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Its words; bytes that are no UTF-8 are replaced.
    Words(Vec<String>),
    /// What is wrong with it.
    Malformed(&'static str),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Between words.
    #[default]
    Blank,
    /// In a word without quotes.
    Word,
    /// In a word with quotes.
    Quoted,
    /// Behind what ends a line before its end: a comment, or something wrong.
    Skip,
    /// Behind a carriage return, which ends a line; what follows up to the line feed belongs to nobody.
    Ended,
}

/// Cuts bytes into lines of words, however they arrive.
#[derive(Debug, Default)]
pub(super) struct Tokenizer {
    state: State,
    words: Vec<String>,
    word: Vec<u8>,
    length: usize,
    wrong: Option<&'static str>,
}

impl Tokenizer {
    /// Takes the next byte; returns the line that it ends.
    pub(super) fn take(&mut self, byte: u8) -> Option<Line> {
        if self.state == State::Ended {
            if byte == b'\n' {
                self.state = State::Blank;
            }
            return None;
        }
        if matches!(byte, b'\n' | b'\r' | b'\0') {
            let line = self.end_line();
            if byte == b'\r' {
                self.state = State::Ended;
            }
            return Some(line);
        }
        self.length += 1;
        if self.length > LONGEST_LINE {
            self.reject("line too long");
        }
        match (self.state, byte) {
            (State::Blank | State::Word, b' ' | b'\t') => self.end_word(State::Blank),
            (State::Blank | State::Word, b'!' | b'#') => self.end_word(State::Skip),
            (State::Blank, b'"') => self.state = State::Quoted,
            (State::Word, b'"') => self.reject("unexpected quote"),
            (State::Quoted, b'"') => self.end_word(State::Blank),
            (State::Blank, _) => {
                self.state = State::Word;
                self.word.push(byte);
            }
            (State::Word | State::Quoted, _) => self.word.push(byte),
            (State::Skip | State::Ended, _) => {}
        }
        None
    }

    fn end_line(&mut self) -> Line {
        match self.state {
            State::Word => self.end_word(State::Blank),
            State::Quoted => self.reject("unexpected end of line"),
            _ => {}
        }
        let Self { words, wrong, .. } = std::mem::take(self);
        wrong.map_or(Line::Words(words), Line::Malformed)
    }

    /// Empty words vanish, quoted or not.
    fn end_word(&mut self, next: State) {
        if !self.word.is_empty() {
            self.words.push(String::from_utf8_lossy(&self.word).into_owned());
            self.word.clear();
        }
        self.state = next;
    }

    fn reject(&mut self, why: &'static str) {
        self.wrong.get_or_insert(why);
        self.words = Vec::new();
        self.word = Vec::new();
        self.state = State::Skip;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let mut tokenizer = Tokenizer::default();
        bytes.iter().filter_map(|&byte| tokenizer.take(byte)).collect()
    }

    fn words(text: &str) -> Line {
        Line::Words(text.split('|').filter(|word| !word.is_empty()).map(str::to_owned).collect())
    }

    #[test]
    fn lines_are_cut_as_the_contract_says() {
        for (input, expected) in [
            ("a b\n", vec![words("a|b")]),
            ("  a \t b  \n", vec![words("a|b")]),
            ("a b\r\nc d\r\n", vec![words("a|b"), words("c|d")]),
            ("a b\rc d\ne\n", vec![words("a|b"), words("e")]),
            ("a\0b\n", vec![words("a"), words("b")]),
            ("\n \n# x\n! \"\n", vec![words(""), words(""), words(""), words("")]),
            ("hypervisor version!x\ntap#1 y\n", vec![words("hypervisor|version"), words("tap")]),
            ("\"a\"\"b\"c\n", vec![words("a|b|c")]),
            ("create\"x\" y\nz\n", vec![Line::Malformed("unexpected quote"), words("z")]),
            ("a \"b c\nz\n", vec![Line::Malformed("unexpected end of line"), words("z")]),
            ("a \"b ! # c\" d\n", vec![words("a|b ! # c|d")]),
            ("\"\" a\n", vec![words("a")]),
            ("a\\ 'b c'\n", vec![words("a\\|'b|c'")]),
            ("a b", vec![]),
        ] {
            assert_eq!(lines(input.as_bytes()), expected, "{input:?}");
        }
    }

    #[test]
    fn a_long_line_is_taken_and_a_longer_one_is_refused_whole() {
        let long = format!("a {}\n", "x".repeat(LONGEST_LINE - 2));
        assert_eq!(lines(long.as_bytes()), [words(&format!("a|{}", "x".repeat(LONGEST_LINE - 2)))]);
        let longer = format!("a {}\nb\n", "x y\" ".repeat(LONGEST_LINE));
        assert_eq!(lines(longer.as_bytes()).len(), 2);
        assert_eq!(lines(longer.as_bytes())[1], words("b"));
        let longer = format!("a {}\n", "x ".repeat(LONGEST_LINE));
        assert_eq!(lines(longer.as_bytes()), [Line::Malformed("line too long")]);
    }

    proptest! {
        #[test]
        fn every_line_feed_ends_one_line(bytes: Vec<u8>) {
            let bytes: Vec<u8> = bytes.into_iter().filter(|&byte| !matches!(byte, b'\r' | 0)).collect();
            let feeds = bytes.iter().filter(|&&byte| byte == b'\n').count();
            prop_assert_eq!(lines(&bytes).len(), feeds);
        }
    }
}
