//! Expectations: what operators call it (see [`super::phrase`]), or comparisons of sums and products
//! of the runs' figures.
//!
//! ```text
//!  expectation = [run ": "] phrase  |  comparison
//!  comparison  = sum (">=" | "<=" | ">" | "<") sum  |  "weights_identical"
//!  sum         = product {("+" | "-") product}
//!  product     = factor {("*" | "/") factor}
//!  factor      = number | metric | "(" sum ")"
//! ```
use super::facts::{Facts, Measured};
use super::phrase::{Found, Phrase, hint};
use crate::job::list;
use crate::nearest::nearest;
use std::collections::BTreeMap;

/// What is measured of each run; `ettr_role` is `ettr` of the run `role`.
pub const METRICS: [&str; 7] = [
    "time",
    "ettr",
    "goodput",
    "overhead",
    "restarts",
    "repeated",
    "restart_over_step",
];
/// The metric of a series: 1 if all runs ended with the same weights, bit for bit, else 0.
pub const WEIGHTS_IDENTICAL: &str = "weights_identical";

/// The name of a run's metric.
pub fn metric(what: &str, run: &str) -> String {
    format!("{what}_{run}")
}

/// What must come out.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// As written.
    pub text: String,
    what: What,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether it is as expected.
    pub held: bool,
    /// The left side's value; none where it could not be measured, and for a phrase.
    pub left: Option<f64>,
    /// The right side's.
    pub right: Option<f64>,
    /// What was found, in words.
    pub found: String,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Phrase { run: Option<String>, phrase: Phrase },
    Comparison(Comparison),
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
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

impl Expectation {
    /// Reads one; the error says what is wrong and what to write.
    pub fn parse(text: &str, runs: &[&str]) -> Result<Self, String> {
        let written = text.trim();
        let of_run = written
            .split_once(':')
            .map(|(run, rest)| (run.trim(), rest));
        let (run, rest) = match of_run.filter(|(run, _)| runs.contains(run)) {
            Some((run, rest)) => (Some(run.to_owned()), rest.trim()),
            None => (None, written),
        };
        let what = match Phrase::parse(rest) {
            Some(phrase) => What::Phrase {
                run,
                phrase: phrase?,
            },
            None => What::Comparison(comparison(written, runs)?),
        };
        Ok(Self {
            text: text.to_owned(),
            what,
        })
    }

    /// Holds it against what was measured.
    pub fn verdict(&self, measured: &Measured) -> Verdict {
        match &self.what {
            What::Phrase { run, phrase } => {
                let Found { held, words } = of_runs(run.as_deref(), phrase, measured);
                Verdict {
                    held,
                    left: None,
                    right: None,
                    found: words,
                }
            }
            What::Comparison(comparison) => comparison.verdict(&measured.figures),
        }
    }

    /// Whether it is about this metric.
    pub fn mentions(&self, metric: &str) -> bool {
        match &self.what {
            What::Phrase { .. } => false,
            What::Comparison(c) => c.left.mentions(metric) || c.right.mentions(metric),
        }
    }

    /// Whether the job's failure is what must come out.
    pub fn wants_failure(&self) -> bool {
        self.phrase() == Some(&Phrase::JobFails)
    }

    /// Whether somebody must read through the store to tell.
    pub fn asks_the_store(&self) -> bool {
        self.phrase() == Some(&Phrase::NothingLost)
    }

    fn phrase(&self) -> Option<&Phrase> {
        match &self.what {
            What::Phrase { phrase, .. } => Some(phrase),
            What::Comparison(_) => None,
        }
    }
}

/// Of the named run, else of each that was struck, else of all: the first that fails, or the last.
fn of_runs(run: Option<&str>, phrase: &Phrase, measured: &Measured) -> Found {
    let struck = measured.runs.iter().any(|(_, facts)| facts.struck);
    let meant = |(name, facts): &&(String, Facts)| match run {
        Some(run) => run == name,
        None => facts.struck || !struck,
    };
    let mut last = None;
    for (_, facts) in measured.runs.iter().filter(meant) {
        let found = phrase.check(facts);
        if !found.held {
            return found;
        }
        last = Some(found);
    }
    last.unwrap_or(Found {
        held: false,
        words: "there is no such run".to_owned(),
    })
}

fn comparison(text: &str, runs: &[&str]) -> Result<Comparison, String> {
    if text == "weights identical" {
        return comparison(WEIGHTS_IDENTICAL, runs);
    }
    let wrong = |why: String| match text.contains(['<', '>']) {
        true => why,
        false => hint(text).unwrap_or(why),
    };
    let mut parser = Parser {
        tokens: tokens(text).map_err(wrong)?,
        at: 0,
        runs,
    };
    let left = parser.sum().map_err(wrong)?;
    let (compare, right) = match parser.next() {
        None if left == Expr::Metric(WEIGHTS_IDENTICAL.to_owned()) => {
            (Compare::AtLeast, Expr::Number(1.0))
        }
        Some(Token::Compare(compare)) => (compare, parser.sum()?),
        _ => return Err(wrong("compare two sides with >=, <=, > or <".to_owned())),
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
    fn verdict(&self, figures: &BTreeMap<String, f64>) -> Verdict {
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
