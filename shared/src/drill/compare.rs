//! Comparisons of sums and products of the runs' figures.
//!
//! ```text
//!  comparison = sum (">=" | "<=" | ">" | "<") sum  |  "weights_identical"
//!  sum        = product {("+" | "-") product}
//!  product    = factor {("*" | "/") factor}
//!  factor     = number | metric | "(" sum ")"
//! ```
use super::expect::{METRICS, Verdict, WEIGHTS_IDENTICAL, metric};
use crate::job::list;
use crate::nearest::nearest;
use std::collections::BTreeMap;

/// Two sides and what must be so between them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Comparison {
    left: Expr,
    compare: Compare,
    right: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Compare {
    AtLeast,
    AtMost,
    Above,
    Below,
}

#[derive(Clone, Debug, PartialEq)]
enum Expr {
    Number(f64),
    Metric(String),
    Of(Box<Expr>, char, Box<Expr>),
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Name(String),
    Sign(char),
    Compare(Compare),
}

/// Reads one; the error says what is wrong and what to write.
pub(super) fn comparison(text: &str, runs: &[&str]) -> Result<Comparison, String> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        runs,
    };
    let left = parser.sum()?;
    let (compare, right) = match parser.next() {
        None if left == Expr::Metric(WEIGHTS_IDENTICAL.to_owned()) => {
            (Compare::AtLeast, Expr::Number(1.0))
        }
        Some(Token::Compare(compare)) => (compare, parser.sum()?),
        _ => return Err("compare two sides with >=, <=, > or <".to_owned()),
    };
    match parser.next() {
        None => Ok(Comparison {
            left,
            compare,
            right,
        }),
        Some(_) => Err("something follows its end; write one comparison".to_owned()),
    }
}

impl Comparison {
    /// Holds it against what was measured.
    pub fn verdict(&self, figures: &BTreeMap<String, f64>) -> Verdict {
        let (left, right) = (self.left.value(figures), self.right.value(figures));
        let held = match (left, right, self.compare) {
            (Some(l), Some(r), Compare::AtLeast) => l >= r,
            (Some(l), Some(r), Compare::AtMost) => l <= r,
            (Some(l), Some(r), Compare::Above) => l > r,
            (Some(l), Some(r), Compare::Below) => l < r,
            _ => false,
        };
        let side = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
        Verdict {
            held,
            left,
            right,
            found: format!("{} against {}", side(left), side(right)),
        }
    }
}

impl Comparison {
    /// Whether it is about this metric.
    pub fn mentions(&self, metric: &str) -> bool {
        self.left.mentions(metric) || self.right.mentions(metric)
    }
}

impl Expr {
    fn value(&self, measured: &BTreeMap<String, f64>) -> Option<f64> {
        let value = match self {
            Expr::Number(number) => *number,
            Expr::Metric(name) => *measured.get(name)?,
            Expr::Of(left, sign, right) => {
                let (l, r) = (left.value(measured)?, right.value(measured)?);
                match sign {
                    '+' => l + r,
                    '-' => l - r,
                    '*' => l * r,
                    _ => l / r,
                }
            }
        };
        value.is_finite().then_some(value)
    }

    fn mentions(&self, metric: &str) -> bool {
        match self {
            Expr::Number(_) => false,
            Expr::Metric(name) => name == metric,
            Expr::Of(left, _, right) => left.mentions(metric) || right.mentions(metric),
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    runs: &'a [&'a str],
}

impl Parser<'_> {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// The next token if it is one of these signs.
    fn sign(&mut self, of: &str) -> Option<char> {
        match self.tokens.get(self.at) {
            Some(Token::Sign(c)) if of.contains(*c) => {
                self.at += 1;
                Some(*c)
            }
            _ => None,
        }
    }

    fn sum(&mut self) -> Result<Expr, String> {
        let mut left = self.product()?;
        while let Some(sign) = self.sign("+-") {
            left = Expr::Of(Box::new(left), sign, Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expr, String> {
        let mut left = self.factor()?;
        while let Some(sign) = self.sign("*/") {
            left = Expr::Of(Box::new(left), sign, Box::new(self.factor()?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Expr, String> {
        match self.next() {
            Some(Token::Number(number)) => Ok(Expr::Number(number)),
            Some(Token::Name(name)) => self.metric(name),
            Some(Token::Sign('(')) => {
                let inner = self.sum()?;
                match self.sign(")") {
                    Some(_) => Ok(inner),
                    None => Err("a `(` is not closed; close it".to_owned()),
                }
            }
            _ => Err("a number or a metric is missing; write one, such as ettr_role".to_owned()),
        }
    }

    fn metric(&self, name: String) -> Result<Expr, String> {
        let per_run = METRICS
            .iter()
            .flat_map(|what| self.runs.iter().map(|run| metric(what, run)));
        let known: Vec<String> = per_run.chain([WEIGHTS_IDENTICAL.to_owned()]).collect();
        if known.contains(&name) {
            return Ok(Expr::Metric(name));
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let hint = match nearest(&name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", list(&known, "and")),
        };
        Err(format!("`{name}` is no metric; {hint}"))
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |fits: fn(char) -> bool| rest.find(|c| !fits(c)).unwrap_or(rest.len());
        let (token, length) = if first.is_ascii_digit() {
            let length = word(|c| c.is_ascii_digit() || c == '.');
            let number = rest[..length].parse();
            let number = number.map_err(|_| format!("`{}` is no number", &rest[..length]))?;
            (Token::Number(number), length)
        } else if first.is_ascii_alphabetic() {
            let length = word(|c| c.is_ascii_alphanumeric() || c == '_');
            (Token::Name(rest[..length].to_owned()), length)
        } else {
            sign(rest).ok_or_else(|| {
                format!("`{first}` has no meaning here; use + - * / ( ) >= <= > <")
            })?
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn sign(rest: &str) -> Option<(Token, usize)> {
    for (text, compare) in [
        (">=", Compare::AtLeast),
        ("<=", Compare::AtMost),
        (">", Compare::Above),
        ("<", Compare::Below),
    ] {
        if rest.starts_with(text) {
            return Some((Token::Compare(compare), text.len()));
        }
    }
    let first = rest.chars().next()?;
    "+-*/()".contains(first).then_some((Token::Sign(first), 1))
}
