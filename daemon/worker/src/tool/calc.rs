//! The calculator: integers, `+ - * / % ^`, unary minus, parentheses.
//!
//! ```text
//!  sum     = product { ("+" | "-") product }
//!  product = power   { ("*" | "/" | "%") power }
//!  power   = unary [ "^" power ]
//!  unary   = "-" unary | digits | "(" sum ")"
//! ```
//!
//! The grammar has no loops, so every expression ends; length, nesting and the 128-bit range
//! bound its time and memory. Division must leave no remainder: what a model reads back is exact.

use std::fmt;

/// Longest expression in characters.
pub const MAX_LENGTH: usize = 4096;
/// Deepest nesting of parentheses, signs and powers.
pub const MAX_DEPTH: usize = 200;

/// Why there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalcError {
    /// The expression is longer than [`MAX_LENGTH`].
    TooLong,
    /// Deeper than [`MAX_DEPTH`].
    TooDeep,
    /// Not an expression; the position counts characters from 0.
    Syntax(usize),
    /// A value outside 128 bits.
    Overflow,
    /// Division by zero.
    ByZero,
    /// A division with a remainder, or a negative power.
    NotWhole,
}

impl fmt::Display for CalcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalcError::TooLong => write!(f, "longer than {MAX_LENGTH} characters"),
            CalcError::TooDeep => write!(f, "nested deeper than {MAX_DEPTH}"),
            CalcError::Syntax(at) => write!(f, "syntax error at character {at}"),
            CalcError::Overflow => f.write_str("too large"),
            CalcError::ByZero => f.write_str("division by zero"),
            CalcError::NotWhole => f.write_str("not a whole number"),
        }
    }
}

/// The value of an expression.
pub fn evaluate(expression: &str) -> Result<i128, CalcError> {
    if expression.len() > MAX_LENGTH {
        return Err(CalcError::TooLong);
    }
    let mut parser = Parser {
        text: expression.as_bytes(),
        at: 0,
        depth: 0,
    };
    let value = parser.sum()?;
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(CalcError::Syntax(parser.at)),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn sum(&mut self) -> Result<i128, CalcError> {
        let mut value = self.product()?;
        while let Some(operator @ (b'+' | b'-')) = self.peek() {
            self.at += 1;
            let right = self.product()?;
            let result = if operator == b'+' {
                value.checked_add(right)
            } else {
                value.checked_sub(right)
            };
            value = result.ok_or(CalcError::Overflow)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<i128, CalcError> {
        let mut value = self.power()?;
        while let Some(operator @ (b'*' | b'/' | b'%')) = self.peek() {
            self.at += 1;
            let right = self.power()?;
            value = match operator {
                b'*' => value.checked_mul(right).ok_or(CalcError::Overflow)?,
                _ if right == 0 => return Err(CalcError::ByZero),
                b'%' => value.checked_rem(right).ok_or(CalcError::Overflow)?,
                _ if value.checked_rem(right) != Some(0) => return Err(CalcError::NotWhole),
                _ => value.checked_div(right).ok_or(CalcError::Overflow)?,
            };
        }
        Ok(value)
    }

    fn power(&mut self) -> Result<i128, CalcError> {
        let base = self.unary()?;
        if self.peek() != Some(b'^') {
            return Ok(base);
        }
        self.at += 1;
        self.depth += 1;
        let exponent = self.bounded(Self::power)?;
        match u32::try_from(exponent) {
            Ok(exponent) => base.checked_pow(exponent).ok_or(CalcError::Overflow),
            Err(_) if exponent < 0 => Err(CalcError::NotWhole),
            Err(_) => Err(CalcError::Overflow),
        }
    }

    fn unary(&mut self) -> Result<i128, CalcError> {
        match self.peek() {
            Some(b'-') => {
                self.at += 1;
                self.depth += 1;
                self.bounded(Self::unary)?
                    .checked_neg()
                    .ok_or(CalcError::Overflow)
            }
            Some(b'(') => {
                self.at += 1;
                self.depth += 1;
                let value = self.bounded(Self::sum)?;
                if self.peek() != Some(b')') {
                    return Err(CalcError::Syntax(self.at));
                }
                self.at += 1;
                Ok(value)
            }
            Some(b'0'..=b'9') => self.number(),
            _ => Err(CalcError::Syntax(self.at)),
        }
    }

    /// Runs a rule one level deeper; the level was counted by the caller.
    fn bounded(
        &mut self,
        rule: fn(&mut Self) -> Result<i128, CalcError>,
    ) -> Result<i128, CalcError> {
        if self.depth > MAX_DEPTH {
            return Err(CalcError::TooDeep);
        }
        let value = rule(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<i128, CalcError> {
        let mut value: i128 = 0;
        while let Some(digit @ b'0'..=b'9') = self.text.get(self.at).copied() {
            let digit = i128::from(digit - b'0');
            let next = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(digit));
            value = next.ok_or(CalcError::Overflow)?;
            self.at += 1;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_their_usual_value() {
        for (text, value) in [
            ("12+34", 46),
            ("1-3", -2),
            ("2*(3+4)", 14),
            ("-(2)*3", -6),
            ("2^3^2", 512),
            ("7%4", 3),
            ("84/2", 42),
            (" 1 + 1 ", 2),
            ("--5", 5),
        ] {
            assert_eq!(evaluate(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, error) in [
            ("", CalcError::Syntax(0)),
            ("1+", CalcError::Syntax(2)),
            ("(1", CalcError::Syntax(2)),
            ("1)", CalcError::Syntax(1)),
            ("1/0", CalcError::ByZero),
            ("1/2", CalcError::NotWhole),
            ("2^(-1)", CalcError::NotWhole),
            ("9^9^9^9", CalcError::Overflow),
            ("2^99999999999", CalcError::Overflow),
        ] {
            assert_eq!(evaluate(text), Err(error), "{text}");
        }
        assert_eq!(evaluate(&"9".repeat(40)), Err(CalcError::Overflow));
        assert_eq!(
            evaluate(&"1".repeat(MAX_LENGTH + 1)),
            Err(CalcError::TooLong)
        );
    }

    #[test]
    fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
        let deep = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
        assert_eq!(evaluate(&deep(MAX_DEPTH)), Ok(1));
        assert_eq!(evaluate(&deep(MAX_DEPTH + 1)), Err(CalcError::TooDeep));
        assert_eq!(evaluate(&"-".repeat(4000)), Err(CalcError::TooDeep));
        assert_eq!(evaluate(&"1^".repeat(2000)), Err(CalcError::TooDeep));
    }
}
