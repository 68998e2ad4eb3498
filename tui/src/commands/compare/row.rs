//! A figure of both runs.
use serde::Serialize;

/// What a figure is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Whole things; a mean of them need not be whole.
    Count,
    /// Seconds.
    Seconds,
    /// A part of a whole, 0 to 1.
    Share,
    /// So many in a unit of time, which the name says.
    Rate,
    /// Whatever the training takes it for.
    Value,
}

/// A figure of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// What it is measured in.
    pub unit: Unit,
    /// Of the first run; none: it does not tell it.
    pub a: Option<f64>,
    /// Of the second run.
    pub b: Option<f64>,
    /// The second less the first; none where one of them is not told.
    pub difference: Option<f64>,
    /// The second by the first; none too where the first is 0 or of another sign.
    pub ratio: Option<f64>,
}

impl Row {
    /// With what follows from both. What is no number is told by nobody.
    pub fn new(name: impl Into<String>, unit: Unit, a: Option<f64>, b: Option<f64>) -> Self {
        let number = |figure: Option<f64>| figure.filter(|figure| figure.is_finite());
        let (a, b) = (number(a), number(b));
        let both = a.zip(b);
        let ratio = both.filter(|(a, _)| *a != 0.0).map(|(a, b)| b / a);
        Self {
            name: name.into(),
            unit,
            a,
            b,
            difference: both.map(|(a, b)| b - a),
            ratio: ratio.filter(|ratio| ratio.is_finite() && *ratio >= 0.0),
        }
    }

    /// Of whole things.
    pub fn count(name: &str, a: Option<u64>, b: Option<u64>) -> Self {
        let figure = |count: Option<u64>| count.map(|count| count as f64);
        Self::new(name, Unit::Count, figure(a), figure(b))
    }

    /// Whether one of the runs tells it.
    pub fn is_told(&self) -> bool {
        self.a.is_some() || self.b.is_some()
    }
}

/// Rows that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Section {
    /// What they are about, for programs.
    pub name: &'static str,
    /// The same in words.
    pub title: String,
    /// They.
    pub rows: Vec<Row>,
}

impl Section {
    /// Of these rows.
    pub fn new(name: &'static str, title: impl Into<String>, rows: Vec<Row>) -> Self {
        let title = title.into();
        Self { name, title, rows }
    }
}

/// Rows of what each run tells by names; a name that a run does not have is a 0 where it tells any.
/// Names come in their order, then those that are not in it.
pub fn by_name(
    unit: Unit,
    order: &[&str],
    a: Option<&[(String, f64)]>,
    b: Option<&[(String, f64)]>,
) -> Vec<Row> {
    let all = || [a, b].into_iter().flatten().flatten();
    let mut names: Vec<&str> = order.to_vec();
    names.retain(|name| all().any(|(told, _)| told == name));
    for (name, _) in all() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let of = |side: Option<&[(String, f64)]>, name: &str| {
        let told = side?.iter().filter(|(told, _)| told == name);
        Some(told.map(|(_, figure)| figure).sum::<f64>())
    };
    let row = |name: &&str| Row::new(name.replace('_', " "), unit, of(a, name), of(b, name));
    names.iter().map(row).collect()
}
