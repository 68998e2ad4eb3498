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
    /// Write all that the daemon says to this file, to be played again with --replay
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Play a recording instead of looking at a daemon
    #[arg(long, value_name = "FILE", conflicts_with_all = ["exit_when_done", "wait_for_daemon"])]
    pub replay: Option<PathBuf>,
    /// Folder of the drill files [default: fixtures/drills, here or above robustctl]
    #[arg(long, value_name = "DIR")]
    pub drills: Option<PathBuf>,
}

/// Colour themes of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThemeName {
    /// Bright on dark.
    Dark,
    /// Dark on bright.
    Light,
}
