//! Phases of each instance over the run, a row each (the paper's Figure 6 of the whole run).
use super::charts::{Area, TEXT, both, fault, is_narrow};
use super::colours::{FAULT, GRID, INK, phase};
use super::run::Run;
use crate::error::CliError;
use crate::format::{clock, who};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use robust_proto::v1;
use robust_shared::printable::one_line as printable;

/// Rows that are drawn at most.
pub const ROWS: usize = 40;
/// Pixels of a row, and of its bar.
const ROW: i32 = 20;
const BAR: i32 = 14;
/// Pixels left of the bars.
const NAMES: i32 = 76;
const RIGHT: i32 = 14;
const TOP: i32 = TEXT + 8;
const SCALE: i32 = 26;

/// The rows: those with incidents and the first of the others, in their order.
pub fn rows<'a>(run: &Run<'a>) -> Vec<&'a v1::Lane> {
    let all = &run.history.lanes;
    let failed = |l: &v1::Lane| {
        let of = |i: &v1::Incident| i.role == l.role && i.index == l.index;
        run.report.incidents.iter().any(of)
    };
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| !failed(&all[*at]));
    order.truncate(ROWS);
    order.sort_unstable();
    order.into_iter().map(|at| &all[at]).collect()
}

/// Both forms of the chart.
pub fn chart(run: &Run<'_>) -> Result<String, CliError> {
    let rows = rows(run);
    let height = TOP + ROW * i32::try_from(rows.len()).unwrap_or(0) + SCALE;
    let height = u32::try_from(height).unwrap_or(0);
    let what = "Phases of each instance over the run, faults marked";
    both(what, height, |area, width| draw(area, width, run, &rows))
}

type Undrawn = DrawingAreaErrorKind<std::io::Error>;

fn draw(area: &Area<'_>, width: u32, run: &Run<'_>, rows: &[&v1::Lane]) -> Result<(), Undrawn> {
    let right = i32::try_from(width).unwrap_or(0) - RIGHT;
    let wide = f64::from(right - NAMES);
    let x = |seconds: f64| NAMES + (seconds / run.seconds() * wide).clamp(0.0, wide) as i32;
    let ink = |pos| ("sans-serif", TEXT).into_font().color(&INK).pos(pos);
    let mut top = TOP;
    for lane in rows {
        let name = printable(&who(&lane.role, lane.index));
        let style = ink(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(name, (NAMES - 6, top + ROW / 2), style))?;
        let rail = [(NAMES, top + ROW / 2), (right, top + ROW / 2)];
        area.draw(&PathElement::new(rail.to_vec(), GRID.stroke_width(1)))?;
        bars(area, run, lane, (top + (ROW - BAR) / 2, &x))?;
        struck(area, run, lane, (top, &x))?;
        top += ROW;
    }
    let count = if is_narrow(width) { 3 } else { 8 };
    for label in 0..=count {
        let seconds = run.seconds() * f64::from(label) / f64::from(count);
        let side = match label {
            0 => HPos::Left,
            last if last == count => HPos::Right,
            _ => HPos::Center,
        };
        let style = ink(Pos::new(side, VPos::Top));
        area.draw(&Text::new(clock(seconds), (x(seconds), top + 6), style))?;
    }
    for (id, at) in run.faults() {
        fault(area, id, x(at), (TOP - 2, top))?;
    }
    Ok(())
}

/// What is shorter than a pixel is left out.
fn bars(
    area: &Area<'_>,
    run: &Run<'_>,
    lane: &v1::Lane,
    (top, x): (i32, &impl Fn(f64) -> i32),
) -> Result<(), Undrawn> {
    for span in &lane.spans {
        let from = run.since_begin(span.from_ms);
        let (left, right) = (x(from), x(from + span.ms as f64 / 1e3));
        if left < right {
            let corners = [(left, top), (right, top + BAR)];
            area.draw(&Rectangle::new(corners, phase(&span.phase).filled()))?;
        }
    }
    Ok(())
}

/// A frame in its own row from a fault until work went on, so that it is seen whose it was.
fn struck(
    area: &Area<'_>,
    run: &Run<'_>,
    lane: &v1::Lane,
    (top, x): (i32, &impl Fn(f64) -> i32),
) -> Result<(), Undrawn> {
    let own = |i: &&v1::Incident| i.role == lane.role && i.index == lane.index;
    for i in run.report.incidents.iter().filter(own) {
        let from = (run.since_begin(i.at_ms) - i.detect_ms / 1e3).max(0.0);
        let (left, right) = (x(from), x(from + i.total_ms / 1e3));
        let corners = [(left, top + 1), (right.max(left + 2), top + ROW - 1)];
        area.draw(&Rectangle::new(corners, FAULT.stroke_width(1)))?;
    }
    Ok(())
}
