//! INI files, in the dialect of the library that ubridge reads them with.

use std::path::Path;

/// The most bytes that a line may have.
const LONGEST_LINE: usize = 1022;

/// A section and its entries. All names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// What stands between the brackets.
    pub name: String,
    entries: Vec<(String, String)>,
}

/// What is wrong with a file: one line for the user each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no such file, or it cannot be read.
    #[error("iniparser: cannot open {file}")]
    CannotOpen {
        /// The file.
        file: String,
    },
    /// A line that is neither blank nor a comment nor a section nor an entry.
    #[error("iniparser: syntax error in {file} on line {line}")]
    Syntax {
        /// The file.
        file: String,
        /// Which line it is, from 1; of a continued one, the first.
        line: usize,
    },
    /// A line has more than 1022 bytes.
    #[error("iniparser: input line too long in {file} ({line})")]
    LineTooLong {
        /// The file.
        file: String,
        /// Which line it is, from 1.
        line: usize,
    },
}

/// Reads a file: its sections, in the order in which they first appear.
///
/// # Errors
/// That the file cannot be opened, or all that is wrong in it.
pub fn load(path: &Path) -> Result<Vec<Section>, Vec<Fault>> {
    let file = path.display().to_string();
    match std::fs::read(path) {
        Ok(text) => parse(&file, &text),
        Err(_) => Err(vec![Fault::CannotOpen { file }]),
    }
}

/// Reads the text of a file. What is not UTF-8 is replaced.
///
/// # Errors
/// All that is wrong in it, in order; `file` is what to call it.
pub fn parse(file: &str, text: &[u8]) -> Result<Vec<Section>, Vec<Fault>> {
    let mut content = Content::default();
    let mut faults = Vec::new();
    let (mut line, mut begun) = (String::new(), 1);
    // The last line may say that it is continued: then by nothing.
    let pieces = text.split(|&byte| byte == b'\n').chain([&b""[..]]);
    for (bytes, number) in pieces.zip(1..) {
        if bytes.len() > LONGEST_LINE {
            faults.push(Fault::LineTooLong { file: file.to_owned(), line: number });
            continue;
        }
        if line.is_empty() {
            begun = number;
        }
        let piece = String::from_utf8_lossy(bytes);
        let piece = piece.trim_ascii_end();
        if let Some(continued) = piece.strip_suffix('\\') {
            line.push_str(continued);
            continue;
        }
        line.push_str(piece);
        match Line::read(&line) {
            Some(line) => content.add(&line),
            None => faults.push(Fault::Syntax { file: file.to_owned(), line: begun }),
        }
        line.clear();
    }
    if faults.is_empty() { Ok(content.sections) } else { Err(faults) }
}

impl Section {
    /// The value of a key, which is to be given in lower case.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    fn set(&mut self, key: String, value: &str) {
        match self.entries.iter_mut().find(|(name, _)| *name == key) {
            Some(entry) => value.clone_into(&mut entry.1),
            None => self.entries.push((key, value.to_owned())),
        }
    }
}

/// What a line says.
enum Line<'a> {
    Nothing,
    Section(&'a str),
    Entry(&'a str, &'a str),
}

impl<'a> Line<'a> {
    /// `None` is a syntax error.
    fn read(line: &'a str) -> Option<Self> {
        let line = line.trim_ascii();
        if is_nothing(line) {
            return Some(Self::Nothing);
        }
        if let Some(line) = line.strip_prefix('[') {
            let (name, behind) = line.split_once(']')?;
            let name = name.trim_ascii();
            return (!name.is_empty() && is_nothing(behind.trim_ascii_start())).then_some(Self::Section(name));
        }
        let (key, value) = line.split_once('=')?;
        let key = key.trim_ascii_end();
        (!key.is_empty()).then(|| Self::Entry(key, unquoted(value.trim_ascii_start())))
    }
}

fn is_nothing(text: &str) -> bool {
    text.is_empty() || text.starts_with(['#', ';'])
}

/// A value without its quotes, or without the comment behind it.
fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(text) = text.strip_prefix(quote) {
            return text.split_once(quote).map_or(text, |(inside, _)| inside);
        }
    }
    text.split_once([';', '#']).map_or(text, |(value, _)| value).trim_ascii_end()
}

/// What has been read of a file.
#[derive(Default)]
struct Content {
    sections: Vec<Section>,
    /// The section that entries belong to; none at the start, and in one that cannot be seen.
    current: Option<usize>,
}

impl Content {
    fn add(&mut self, line: &Line<'_>) {
        match line {
            Line::Nothing => {}
            Line::Section(name) => self.enter(name.to_ascii_lowercase()),
            Line::Entry(key, value) => {
                if let Some(section) = self.current.and_then(|at| self.sections.get_mut(at)) {
                    section.set(key.to_ascii_lowercase(), value);
                }
            }
        }
    }

    /// Goes on with a section, which may have appeared before. One with a colon in its name is not to be seen:
    /// the original holds it for an entry.
    fn enter(&mut self, name: String) {
        if name.contains(':') {
            self.current = None;
            return;
        }
        let known = self.sections.iter().position(|section| section.name == name);
        self.current = Some(known.unwrap_or(self.sections.len()));
        if known.is_none() {
            self.sections.push(Section { name, entries: Vec::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sections(text: &str) -> Vec<Section> {
        parse("a.ini", text.as_bytes()).unwrap()
    }

    fn names(text: &str) -> Vec<String> {
        sections(text).into_iter().map(|section| section.name).collect()
    }

    /// The value of `key` in a file with one section and this line in it.
    fn value(line: &str) -> String {
        sections(&format!("[s]\n{line}\n"))[0].get("key").expect("the key").to_owned()
    }

    fn faults(text: &str) -> Vec<String> {
        parse("a.ini", text.as_bytes()).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sections_keep_their_order_and_names_are_in_lower_case() {
        let read = sections("[Zebra]\nKey_One = Value\n  [ Ant ]  ; the second\nx=1");
        assert_eq!(read[0].name, "zebra");
        assert_eq!(read[0].get("key_one"), Some("Value"));
        assert_eq!(read[0].get("x"), None);
        assert_eq!((read[1].name.as_str(), read[1].get("x")), ("ant", Some("1")));
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn a_repeated_section_is_merged_and_a_repeated_key_overridden() {
        let read = sections("[a]\nx=1\ny=1\n[b]\nx=5\n[A]\nX=2\nz=3");
        assert_eq!(read.len(), 2);
        assert_eq!(["x", "y", "z"].map(|key| read[0].get(key)), [Some("2"), Some("1"), Some("3")]);
        assert_eq!(read[1].get("x"), Some("5"));
    }

    #[test]
    fn keys_before_any_section_are_ignored() {
        assert_eq!(sections("x=1\n[a]")[0].get("x"), None);
        assert_eq!(sections("x=1"), []);
        assert_eq!(sections(""), []);
    }

    #[test]
    fn a_section_with_a_colon_is_not_seen() {
        let read = sections("[a]\nx=1\n[b:c]\nx=2\n[d]\nx=3");
        assert_eq!(names("[a]\n[b:c]\n[d]"), ["a", "d"]);
        assert_eq!(read[0].get("x"), Some("1"));
    }

    #[test]
    fn comments_and_blank_lines_say_nothing() {
        assert_eq!(names("# [x]\n;[y]\n\n \t \n  # key\n[a]\r\n"), ["a"]);
    }

    #[test]
    fn values_end_at_a_comment_unless_quoted() {
        for (line, expected) in [
            ("key=value", "value"),
            ("key \t=\t value  ", "value"),
            ("  key = two words ; comment", "two words"),
            ("key = value#comment", "value"),
            ("key = a;b", "a"),
            ("key = a=b", "a=b"),
            ("key =", ""),
            ("key = ; nothing", ""),
            ("key = \"a;b # c\" ; comment", "a;b # c"),
            ("key = 'a;b \"c\" '", "a;b \"c\" "),
            ("key = \"it's\"", "it's"),
            ("key = \"\"", ""),
            ("key = ''", ""),
            ("key = \"never closed ; so", "never closed ; so"),
            ("key = value\r", "value"),
            ("KEY = Value", "Value"),
        ] {
            assert_eq!(value(line), expected, "{line}");
        }
    }

    #[test]
    fn a_backslash_continues_the_line() {
        assert_eq!(value("key = one\\\n two\\\n three"), "one two three");
        assert_eq!(value("key = one\\ \r\n two"), "one two");
        assert_eq!(value("key = c:\\temp"), "c:\\temp");
        assert_eq!(names("[a]\n# comment \\\n[b]\n[c]"), ["a", "c"]);
        assert_eq!(sections("[a]\nx=1\\")[0].get("x"), Some("1"));
    }

    #[test]
    fn every_syntax_error_is_told_with_its_line() {
        let wrong = "[a]\nno equals sign\nx=1\n= 1\n[b\n[]\n[c] d\ncontinued \\\nonly\n\n!";
        let lines = [2, 4, 5, 6, 7, 8, 11];
        let expected = lines.map(|line| format!("iniparser: syntax error in a.ini on line {line}"));
        assert_eq!(faults(wrong), expected);
    }

    #[test]
    fn a_line_may_have_1022_bytes() {
        let line = |length: usize| format!("key={}", "x".repeat(length - "key=".len()));
        assert_eq!(value(&line(1022)).len(), 1018);
        assert_eq!(
            faults(&format!("[a]\n{}\nwrong\n", line(1023))),
            ["iniparser: input line too long in a.ini (2)", "iniparser: syntax error in a.ini on line 3"]
        );
    }

    #[test]
    fn a_missing_file_is_told() {
        let faults = load(Path::new("/nonexistent/ubridge.ini")).unwrap_err();
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["iniparser: cannot open /nonexistent/ubridge.ini"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let _ = parse("a.ini", &bytes);
        }

        #[test]
        fn any_lines_are_read_or_refused(text in r#"([\[\]a-cA-C:=;#"'\\ \t\r\n]{0,8}\n?){0,40}"#) {
            let lines = text.split('\n').count();
            match parse("a.ini", text.as_bytes()) {
                Ok(sections) => for section in sections {
                    prop_assert!(!section.name.is_empty() && !section.name.contains([':', 'A', 'B', 'C']));
                },
                Err(faults) => prop_assert!(!faults.is_empty() && faults.len() <= lines),
            }
        }

        #[test]
        fn a_quoted_value_comes_back_as_it_was(value in r#"[^"\\\n\x00]{0,100}"#) {
            prop_assert_eq!(super::tests::value(&format!("key = \"{value}\" # comment")), value);
        }
    }
}
