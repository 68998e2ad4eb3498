//! Colours of charts: the page's style sheet decides them, so that it can be dark or light.
//!
//! The charting crate knows colours by value only. So each is drawn in a value of its own that stands
//! for a variable of the style sheet, and is replaced by it afterwards.
use plotters::style::RGBColor;
use robust_shared::phase::Phase;

/// The variables: those of charts, then one for each phase.
const CHART: [&str; 6] = ["ink", "grid", "ettr", "goodput", "reward", "fault"];

/// Text and axes.
pub const INK: RGBColor = RGBColor(1, 2, 0);
/// Lines of the grid.
pub const GRID: RGBColor = RGBColor(1, 2, 1);
/// ETTR.
pub const ETTR: RGBColor = RGBColor(1, 2, 2);
/// Goodput.
pub const GOODPUT: RGBColor = RGBColor(1, 2, 3);
/// The reward.
pub const REWARD: RGBColor = RGBColor(1, 2, 4);
/// Faults.
pub const FAULT: RGBColor = RGBColor(1, 2, 5);

/// A phase's; one that is not known has the ink's.
pub fn phase(name: &str) -> RGBColor {
    let at = Phase::ALL.iter().position(|p| p.name() == name);
    let index = at.map_or(0, |at| CHART.len() + at);
    RGBColor(1, 2, u8::try_from(index).unwrap_or(0))
}

/// The style sheet's name for a phase's colour.
pub fn variable(phase: &str) -> String {
    let known = Phase::ALL.iter().any(|p| p.name() == phase);
    match known {
        true => format!("--{}", phase.replace('_', "-")),
        false => "--ink".to_owned(),
    }
}

/// A chart whose colours are the style sheet's.
pub fn styled(svg: &str) -> String {
    let names = CHART.iter().map(|name| format!("--{name}"));
    let phases = Phase::ALL.iter().map(|p| variable(p.name()));
    names
        .chain(phases)
        .enumerate()
        .fold(svg.to_owned(), |svg, (index, name)| {
            svg.replace(
                &format!("\"#0102{index:02X}\""),
                &format!("\"var({name})\""),
            )
        })
}
