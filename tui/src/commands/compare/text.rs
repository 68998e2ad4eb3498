//! The comparison for a terminal of 80 columns.
use super::comparison::{Comparison, Head};
use super::incidents::Group;
use super::job::Key;
use super::row::{Row, Unit};
use crate::format::cut;
use crate::format::millis;
use crate::paint::Paint;
use crate::table::Table;
use robust_shared::printable::one_line as printable;

/// Columns of a line.
const LINE: usize = 80;
/// Columns of a figure's name.
const NAME: usize = 34;
/// Columns of a key, and of each of its values.
const KEY: usize = 30;
const VALUE: usize = 22;

/// All of it.
pub fn of(comparison: &Comparison, paint: Paint) -> String {
    let mut text = head("A", &comparison.a, paint) + &head("B", &comparison.b, paint);
    text = text + "\n" + &figures(comparison, paint);
    text += "-: that run does not tell it\n";
    text = text + "\n" + &job_file(comparison.job_file.as_deref(), paint);
    if !comparison.notes.is_empty() {
        text += "\n";
    }
    for note in &comparison.notes {
        text += &format!("{note}\n");
    }
    text
}

fn head(letter: &str, run: &Head, paint: Paint) -> String {
    let mut text = format!(
        "{letter}  {}\n   {}, mode {}, policy {}, {}\n",
        paint.bold(&printable(&run.name)),
        printable(&run.job),
        printable(&run.mode),
        printable(&run.policy),
        paint.word(&printable(&run.state)),
    );
    if !run.reason.is_empty() {
        text += &format!("   {}\n", cut(&run.reason, LINE - 3));
    }
    text
}

/// Sections below each other, with the same columns.
fn figures(comparison: &Comparison, paint: Paint) -> String {
    let heads = ["", "A", "B", "B - A", "B / A"].map(str::to_owned);
    let mut text = paint.bold(&line(&heads)) + "\n";
    for section in &comparison.sections {
        text += &part(&section.title, &section.rows, paint);
    }
    for group in &comparison.incidents {
        text += &part(&title(group), &group.rows, paint);
    }
    text
}

/// A figure's name, its values, and what follows from them.
fn line([name, a, b, difference, ratio]: &[String; 5]) -> String {
    format!("{name:<NAME$}{a:>11}{b:>11}{difference:>12}{ratio:>10}")
}

fn title(group: &Group) -> String {
    let Group {
        role, rule, cause, ..
    } = group;
    match cause {
        Some(cause) => format!("incidents of {role}, {rule}: {cause}"),
        None => format!("incidents of {role}, {rule}"),
    }
}

/// The rows of a section below its title; nothing where neither run tells any.
fn part(title: &str, rows: &[Row], paint: Paint) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.is_told()) {
        let told = |figure: Option<f64>| figure.map_or_else(dash, |f| shown(f, row.unit));
        let cells = [
            cut(&format!("  {}", row.name), NAME),
            told(row.a),
            told(row.b),
            row.difference.map_or_else(dash, |d| signed(d, row.unit)),
            row.ratio.map_or_else(dash, |ratio| format!("{ratio:.3}")),
        ];
        text += &(line(&cells) + "\n");
    }
    match text.is_empty() {
        true => text,
        false => format!("{}\n{text}", paint.bold(&cut(&upper(title), LINE))),
    }
}

/// With a capital letter first.
fn upper(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn dash() -> String {
    "-".to_owned()
}

fn signed(difference: f64, unit: Unit) -> String {
    let sign = match difference {
        d if d > 0.0 => "+",
        d if d < 0.0 => "-",
        _ => "",
    };
    format!("{sign}{}", shown(difference.abs(), unit))
}

fn shown(figure: f64, unit: Unit) -> String {
    match unit {
        // A mean of whole things that are few.
        Unit::Count if figure.fract() != 0.0 && figure.abs() < 1e3 => format!("{figure:.1}"),
        Unit::Count => format!("{figure:.0}"),
        Unit::Seconds if figure == 0.0 => "0 s".to_owned(),
        Unit::Seconds => millis(figure * 1e3),
        Unit::Share => format!("{figure:.3}"),
        Unit::Rate => format!("{figure:.1}"),
        Unit::Value => match figure.abs() {
            0.0 => "0".to_owned(),
            size if size < 1e-3 => format!("{figure:.2e}"),
            size if size < 1e3 => format!("{figure:.4}"),
            _ => format!("{figure:.1}"),
        },
    }
}

/// Keys that differ with both values.
fn job_file(differences: Option<&[Key]>, paint: Paint) -> String {
    let Some(differences) = differences else {
        return "The job files are not compared: one of them is not known.\n".to_owned();
    };
    if differences.is_empty() {
        return "The job files are the same.\n".to_owned();
    }
    let mut table = Table::new(&["JOB FILE KEYS THAT DIFFER", "A", "B"]);
    for key in differences {
        let value = |value: &Option<String>| match value {
            Some(value) => cut(value, VALUE),
            None => "(not set)".to_owned(),
        };
        table.row([cut(&key.key, KEY), value(&key.a), value(&key.b)]);
    }
    table.render(paint)
}
