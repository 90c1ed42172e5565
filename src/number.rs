//! Whole numbers in decimal, as C's `atoi` reads them.
#![forbid(unsafe_code)]

use std::str::FromStr;

/// The integer that a text is: blanks, a sign, digits, and no more. Nothing where it is anything else, or out of
/// the range of `T`.
pub(crate) fn whole<T: FromStr>(text: &str) -> Option<T> {
    text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']).parse().ok()
}

/// The integer that a text begins with: 0 where there is none, and the nearest one where it is out of range.
pub(crate) fn leading(text: &str) -> i64 {
    let text = text.trim_ascii_start();
    let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    let add = |number: i64, digit: u8| number.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let number = digits.bytes().take(end).fold(0, add);
    if sign == "-" { -number } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_text_is_a_number_or_nothing() {
        let right = [("0", 0), ("007", 7), (" \t+5", 5), ("-1", -1), ("-0", 0), ("2147483647", i32::MAX)];
        for (text, value) in right {
            assert_eq!(whole(text), Some(value), "{text:?}");
        }
        for text in ["", " ", "+", "-", "--1", "+-1", "1 ", "5x", "x", "0x10", "1.5", "1e3", "2147483648", "٣"] {
            assert_eq!(whole::<i32>(text), None, "{text:?}");
        }
        assert_eq!(["65535", "65536", "-1"].map(whole::<u16>), [Some(65535), None, None]);
    }

    #[test]
    fn the_beginning_of_any_text_is_a_number() {
        for (text, number) in [("12", 12), (" +7x", 7), ("-3", -3), ("", 0), ("-", 0), ("x1", 0), ("+-1", 0)] {
            assert_eq!(leading(text), number, "{text}");
        }
        assert_eq!(leading("99999999999999999999"), i64::MAX);
        assert_eq!(leading("-99999999999999999999"), -i64::MAX);
    }
}
