//! Options of `tui`.
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

/// Options of `tui`.
#[derive(Clone, Debug, ClapArgs)]
pub struct TuiArgs {
    /// Draw with ASCII only [default: when LC_ALL, LC_CTYPE or LANG is not UTF-8]
    #[arg(long)]
    pub ascii: bool,
    /// Colours for a dark or a light terminal (NO_COLOR switches them off)
    #[arg(long, value_enum, default_value = "dark")]
    pub theme: ThemeName,
    /// Leave when the job is over: exit 0 if it ended well, 1 if not
    #[arg(long)]
    pub exit_when_done: bool,
    /// Open the console also when no daemon can be reached yet
    #[arg(long)]
    pub wait_for_daemon: bool,
    /// Only look: nothing that changes the job can be done from here
    #[arg(long)]
    pub read_only: bool,
    /// Leave the mouse to the terminal
    #[arg(long)]
    pub no_mouse: bool,
    /// Do not ring the terminal's bell, nor have it notify, for alarms and incidents
    #[arg(long)]
    pub no_bell: bool,
    /// Write all that the daemon says to this file, to be played again with --replay
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Play a recording instead of looking at a daemon
    #[arg(long, value_name = "FILE", conflicts_with_all = ["exit_when_done", "wait_for_daemon"])]
    pub replay: Option<PathBuf>,
    /// Write a frame of the recording as a picture (SVG) to this file, instead of opening the console
    #[arg(
        long,
        value_name = "FILE",
        requires = "replay",
        conflicts_with = "record"
    )]
    pub svg: Option<PathBuf>,
    /// What is in the picture.
    #[command(flatten)]
    pub picture: PictureArgs,
    /// Folder of the drill files [default: fixtures/drills, here or above robustctl]
    #[arg(long, value_name = "DIR")]
    pub drills: Option<PathBuf>,
    /// Begin with the jobs of these contexts side by side (key J); with those of all contexts where none is named
    #[arg(long, value_name = "NAME,..", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["record", "replay", "svg", "exit_when_done", "wait_for_daemon"])]
    pub contexts: Option<String>,
}

/// Which frame `--svg` draws, and how.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct PictureArgs {
    /// Seconds from the recording's begin [default: its end]
    #[arg(long, value_name = "SECONDS", requires = "svg")]
    pub frame: Option<f64>,
    /// Screen by its digit
    #[arg(long, value_name = "N", requires = "svg", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub screen: u8,
    /// Columns and lines
    #[arg(long, value_name = "COLUMNSxLINES", requires = "svg", default_value = "80x24", value_parser = size)]
    pub size: (u16, u16),
}

/// `80x24`.
fn size(text: &str) -> Result<(u16, u16), String> {
    let parts = text.split_once('x');
    let parts = parts.and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    let within = |(w, h): &(u16, u16)| (60..=400).contains(w) && (16..=200).contains(h);
    let wanted = "a size is COLUMNSxLINES, from 60x16 to 400x200";
    parts.filter(within).ok_or_else(|| wanted.to_owned())
}

/// Colour themes of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThemeName {
    /// Bright on dark.
    Dark,
    /// Dark on bright.
    Light,
}
