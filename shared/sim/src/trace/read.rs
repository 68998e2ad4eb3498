//! Reads a trace. What cannot be read is named with its line and its column, both from 1.
use super::csv::{Field, fields};
use super::map::{Format, From, Mapping, Unit};
use super::rows::{Class, Fault, LONGEST, Trace};
use chrono::DateTime;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Where a file cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ReadError {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
    /// Why.
    pub what: String,
}

/// A value of a row, and where it stands.
struct Cell {
    column: usize,
    value: Value,
}

/// One row: its fields by their names.
struct Row<'a> {
    line: usize,
    cells: Vec<(&'a str, Cell)>,
}

impl Row<'_> {
    /// A field that has something in it.
    fn get(&self, name: &str) -> Option<&Cell> {
        let cell = self.cells.iter().find(|(of, _)| *of == name);
        let empty = |value: &Value| value.is_null() || value.as_str() == Some("");
        cell.map(|(_, cell)| cell)
            .filter(|cell| !empty(&cell.value))
    }

    fn need(&self, name: &str) -> Result<&Cell, ReadError> {
        let what = || format!("`{name}` is missing");
        self.get(name).ok_or_else(|| self.error(1, what()))
    }

    fn error(&self, column: usize, what: impl fmt::Display) -> ReadError {
        ReadError {
            line: self.line,
            column,
            what: what.to_string(),
        }
    }
}

/// Reads all of a file. The format is the mapping's, or else what the file looks like.
pub fn read(text: &str, mapping: &Mapping) -> Result<Trace, ReadError> {
    let json = text.trim_start().starts_with('{');
    let looks = if json { Format::Jsonl } else { Format::Csv };
    let lines = text.lines().zip(1..);
    let lines = lines.filter(|(line, _)| !line.trim().is_empty());
    let mut reader = Reader {
        mapping,
        from: None,
    };
    let faults = match mapping.format.unwrap_or(looks) {
        Format::Jsonl => lines
            .map(|(line, number)| reader.json_line(line, number))
            .collect::<Result<Vec<_>, _>>()?,
        Format::Csv => reader.csv(lines)?,
    };
    if faults.is_empty() {
        let what = "there is no fault in it".to_owned();
        return Err(ReadError {
            line: 1,
            column: 1,
            what,
        });
    }
    reader.trace(faults)
}

struct Reader<'a> {
    mapping: &'a Mapping,
    /// The earliest instant, where times are dates and nothing says when the trace begins.
    from: Option<f64>,
}

/// A fault whose time is not yet that of the trace.
type Dated = (f64, usize, Fault);

impl Reader<'_> {
    fn json_line(&mut self, line: &str, number: usize) -> Result<Dated, ReadError> {
        let object: serde_json::Map<String, Value> =
            serde_json::from_str(line).map_err(|e| ReadError {
                line: number,
                column: e.column().max(1),
                what: format!("it is no JSON object: {}", without_place(&e.to_string())),
            })?;
        let place = |name: &str| {
            let before = line.find(&format!("\"{name}\"")).unwrap_or(0);
            line[..before].chars().count() + 1
        };
        let cells = object.iter().map(|(name, value)| {
            let cell = Cell {
                column: place(name),
                value: value.clone(),
            };
            (name.as_str(), cell)
        });
        let row = Row {
            line: number,
            cells: cells.collect(),
        };
        self.fault(&row)
    }

    fn csv<'a>(
        &mut self,
        mut lines: impl Iterator<Item = (&'a str, usize)>,
    ) -> Result<Vec<Dated>, ReadError> {
        let split = |line: &str, number: usize| {
            fields(line, self.mapping.delimiter).map_err(|(column, what)| ReadError {
                line: number,
                column,
                what: what.to_owned(),
            })
        };
        let Some((first, number)) = lines.next() else {
            return Ok(Vec::new());
        };
        let names = split(first.trim_start_matches('\u{feff}'), number)?;
        self.has_columns(&names, number)?;
        let mut rows = Vec::new();
        for (line, number) in lines {
            let cells = split(line, number)?;
            if cells.len() != names.len() {
                let (has, want) = (cells.len(), names.len());
                return Err(ReadError {
                    line: number,
                    column: cells
                        .get(want)
                        .map_or(line.chars().count() + 1, |c| c.column),
                    what: format!("it has {has} fields, the first line names {want}"),
                });
            }
            let cells = names.iter().zip(cells).map(|(name, field)| {
                let cell = Cell {
                    column: field.column,
                    value: Value::String(field.text),
                };
                (name.text.as_str(), cell)
            });
            let row = Row {
                line: number,
                cells: cells.collect(),
            };
            rows.push(row);
        }
        rows.iter().map(|row| self.fault(row)).collect()
    }

    fn has_columns(&self, names: &[Field], line: usize) -> Result<(), ReadError> {
        let there: Vec<_> = names.iter().map(|name| name.text.as_str()).collect();
        for name in [&self.mapping.time, &self.mapping.node] {
            if !there.contains(&name.as_str()) {
                let there = there.join(", ");
                let what = format!(
                    "there is no column `{name}`; there are {there}. A mapping file (--map) says which is which"
                );
                return Err(ReadError {
                    line,
                    column: 1,
                    what,
                });
            }
        }
        Ok(())
    }

    fn fault(&mut self, row: &Row<'_>) -> Result<Dated, ReadError> {
        let mapping = self.mapping;
        let time = row.need(&mapping.time)?;
        let at = self.instant(row, time)?;
        if mapping.time_unit == Unit::Rfc3339 {
            self.from = Some(self.from.map_or(at, |from| from.min(at)));
        }
        let node = row.need(&mapping.node)?;
        let repair = match &mapping.repaired {
            Some(name) => self.until(row, name, at)?,
            None => row
                .get(&mapping.repair)
                .map(|cell| self.length(row, cell))
                .transpose()?,
        };
        let class = self.class(row)?;
        let fault = Fault {
            at: Duration::ZERO,
            node: words(&node.value),
            class,
            cause: row
                .get(&mapping.cause)
                .map_or_else(|| class.name().to_owned(), |cell| words(&cell.value)),
            repair,
            line: row.line,
        };
        Ok((at, time.column, fault))
    }

    fn class(&self, row: &Row<'_>) -> Result<Class, ReadError> {
        let mapping = self.mapping;
        let Some(cell) = row.get(&mapping.class) else {
            return Ok(mapping.default_class.unwrap_or(Class::Node));
        };
        let word = words(&cell.value);
        let named = mapping.classes.get(&word).copied();
        let class = named.map_or_else(|| word.parse(), Ok);
        match (class, mapping.default_class) {
            (Ok(class), _) | (Err(_), Some(class)) => Ok(class),
            (Err(e), None) => {
                let fix = "`[classes]` in a mapping file (--map) translates other words";
                Err(row.error(cell.column, format!("{e}; {fix}")))
            }
        }
    }

    /// An instant in seconds, from an origin that is the same for all of a file.
    fn instant(&self, row: &Row<'_>, cell: &Cell) -> Result<f64, ReadError> {
        match self.mapping.time_unit.seconds() {
            Some(unit) => Ok(number(row, cell)? * unit),
            None => date(&words(&cell.value)).map_err(|e| row.error(cell.column, e)),
        }
    }

    fn length(&self, row: &Row<'_>, cell: &Cell) -> Result<Duration, ReadError> {
        let unit = self.mapping.repair_unit.seconds().unwrap_or(1.0);
        span(number(row, cell)? * unit).map_err(|e| row.error(cell.column, e))
    }

    fn until(&self, row: &Row<'_>, name: &str, at: f64) -> Result<Option<Duration>, ReadError> {
        let Some(cell) = row.get(name) else {
            return Ok(None);
        };
        let length = span(self.instant(row, cell)? - at);
        length.map(Some).map_err(|e| row.error(cell.column, e))
    }

    /// With times since the trace begins.
    fn trace(&self, faults: Vec<Dated>) -> Result<Trace, ReadError> {
        let unit = self.mapping.time_unit.seconds();
        let from = match &self.mapping.from {
            None => Ok(self.from.unwrap_or(0.0)),
            Some(From::Number(number)) => Ok(number * unit.unwrap_or(1.0)),
            Some(From::Date(text)) => date(text),
        };
        let from = from.map_err(|e| ReadError {
            line: 1,
            column: 1,
            what: format!("`from` of the mapping: {e}"),
        })?;
        let since = |(at, column, fault): Dated| {
            let at = span(at - from).map_err(|e| ReadError {
                line: fault.line,
                column,
                what: format!("{e}; `from` in a mapping file (--map) says when the trace begins"),
            })?;
            Ok(Fault { at, ..fault })
        };
        let faults = faults.into_iter().map(since);
        Ok(Trace::new(faults.collect::<Result<_, ReadError>>()?))
    }
}

fn number(row: &Row<'_>, cell: &Cell) -> Result<f64, ReadError> {
    let read = match &cell.value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok().filter(|n: &f64| n.is_finite()),
        _ => None,
    };
    let what = || format!("`{}` is no number", words(&cell.value));
    read.ok_or_else(|| row.error(cell.column, what()))
}

/// Seconds since 1970.
fn date(text: &str) -> Result<f64, String> {
    let read = DateTime::parse_from_rfc3339(text);
    let read = read.map_err(|e| {
        format!(
            "`{text}` is no date with a time and its distance from UTC (2026-01-31T13:00:00Z): {e}"
        )
    })?;
    Ok(read.timestamp_micros() as f64 / 1e6)
}

fn span(seconds: f64) -> Result<Duration, String> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(span) if span <= LONGEST => Ok(span),
        Ok(_) => Err(format!(
            "{:.0} days are too many: at most {:.0} can be simulated",
            seconds / 86_400.0,
            LONGEST.as_secs_f64() / 86_400.0
        )),
        Err(_) => Err(format!("it lies {:.1} s before the begin", -seconds)),
    }
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The library says the place in the text that it was given, which is one line of many.
fn without_place(text: &str) -> &str {
    text.split(" at line ").next().unwrap_or(text)
}
