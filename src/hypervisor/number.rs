//! Numbers in commands.

use std::str::FromStr;

/// Reads a decimal number as C's `atoi` does, blanks and sign included; `None` for anything else and for what
/// `T` cannot hold.
pub(super) fn parse<T: FromStr>(text: &str) -> Option<T> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.strip_prefix('+').unwrap_or(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_and_garbage_is_not() {
        assert_eq!([" 7", "+7", "007"].map(parse::<u16>), [Some(7); 3]);
        assert_eq!(parse("-7"), Some(-7));
        assert_eq!(["", "-", "7x", "x", "70000", "-7", "+-7", "7 "].map(parse::<u16>), [None; 8]);
    }
}
