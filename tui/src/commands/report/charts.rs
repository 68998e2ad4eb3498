//! Curves as inline SVG, each in a wide and a narrow form: text in a picture that is only made
//! smaller cannot be read on a phone. The style sheet shows one of the two.
use super::colours::{ETTR, FAULT, GOODPUT, GRID, INK, REWARD, styled};
use super::escape::esc;
use super::run::Run;
use crate::error::CliError;
use crate::format::clock;
use plotters::coord::Shift;
use plotters::prelude::*;
use robust_proto::v1;

/// Where a chart is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Widths of the two forms, in CSS pixels.
pub const WIDTHS: [u32; 2] = [960, 360];
/// Whether a form of this width is the narrow one, with room for fewer labels.
pub fn is_narrow(width: u32) -> bool {
    width == WIDTHS[1]
}

/// Pixels of text.
pub const TEXT: i32 = 15;

/// Both forms of a chart; `what` is what somebody hears who does not see it.
pub fn both<E: std::fmt::Display>(
    what: &str,
    height: u32,
    draw: impl Fn(&Area<'_>, u32) -> Result<(), E>,
) -> Result<String, CliError> {
    let mut html = String::new();
    for (width, class) in WIDTHS.into_iter().zip(["wide", "narrow"]) {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        draw(&area, width).map_err(undrawn)?;
        area.present().map_err(undrawn)?;
        drop(area);
        let named = format!(
            "<svg class=\"{class}\" role=\"img\" aria-label=\"{}\" ",
            esc(what)
        );
        html += &styled(&svg).replacen("<svg ", &named, 1);
    }
    Ok(html)
}

fn undrawn(e: impl std::fmt::Display) -> CliError {
    CliError::Failed(format!("a chart cannot be drawn: {e}"))
}

/// Sliding ETTR and goodput, with the faults.
pub fn ettr(run: &Run<'_>) -> Result<String, CliError> {
    let curve = &run.history.curve;
    let line = |of: fn(&v1::CurvePoint) -> f64| {
        let points = curve.iter().map(|p| (run.since_begin(p.at_ms), of(p)));
        points.collect::<Vec<_>>()
    };
    let lines = [
        (line(|p| p.goodput_sliding), GOODPUT),
        (line(|p| p.ettr_sliding), ETTR),
    ];
    let what = "Sliding ETTR and goodput over the run, from 0 to 1, faults marked";
    both(what, 260, |area, width| {
        plot(area, width, run, &lines, (0.0, 1.0))
    })
}

/// The reward of the steps.
pub fn reward(run: &Run<'_>) -> Result<String, CliError> {
    let steps = run.history.steps.iter().filter(|s| s.reward.is_finite());
    let points: Vec<_> = steps
        .map(|s| (run.since_begin(s.at_ms), s.reward))
        .collect();
    let bounds = |(low, high): (f64, f64), (_, reward): &(f64, f64)| {
        (low.min(*reward), high.max(*reward * 1.05))
    };
    let bounds = points.iter().fold((0.0, 0.1), bounds);
    let what = "Mean reward of the steps over the run";
    both(what, 180, |area, width| {
        plot(area, width, run, &[(points.clone(), REWARD)], bounds)
    })
}

type Line = (Vec<(f64, f64)>, RGBColor);
type Undrawn = DrawingAreaErrorKind<std::io::Error>;

fn plot(
    area: &Area<'_>,
    width: u32,
    run: &Run<'_>,
    lines: &[Line],
    (low, high): (f64, f64),
) -> Result<(), Undrawn> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(TEXT + 6)
        .margin_right(14)
        .margin_bottom(2)
        .x_label_area_size(26)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..run.seconds(), low..high)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(GRID.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(("sans-serif", TEXT).into_font().color(&INK))
        .x_labels(if is_narrow(width) { 4 } else { 9 })
        .x_label_formatter(&|seconds| clock(*seconds))
        .y_labels(5)
        .y_label_formatter(&|value| format!("{value:.2}"))
        .draw()?;
    for (points, colour) in lines {
        chart.draw_series(LineSeries::new(
            points.iter().copied(),
            colour.stroke_width(2),
        ))?;
    }
    for (id, at) in run.faults() {
        let (x, top) = chart.backend_coord(&(at.min(run.seconds()), high));
        let (_, bottom) = chart.backend_coord(&(at.min(run.seconds()), low));
        fault(area, id, x, (top, bottom))?;
    }
    Ok(())
}

/// A line where a fault struck, the incident's number above it.
pub fn fault(area: &Area<'_>, id: u64, x: i32, (top, bottom): (i32, i32)) -> Result<(), Undrawn> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    area.draw(&PathElement::new(
        vec![(x, top), (x, bottom)],
        FAULT.stroke_width(1),
    ))?;
    let above = Pos::new(HPos::Center, VPos::Bottom);
    let style = ("sans-serif", TEXT).into_font().color(&FAULT).pos(above);
    area.draw(&Text::new(id.to_string(), (x, top), style))
}
