//! The Xid table: what each of the driver's error numbers says about the slot.
//!
//! From NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid
//! Catalog"), by its immediate action: `RESTART_APP` and `IGNORE` for what an application did are
//! notes (its process ends by itself, which the exit rule sees), what asks for a reset at the next
//! occasion drains, what asks for a reset, restart or replacement now is a fault. Where we go beyond
//! the catalogue the row says why.
use super::Advice;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// The number.
    pub code: u32,
    /// What to do.
    pub advice: Advice,
    /// What it says.
    pub meaning: &'static str,
}

/// The row for a number. What the table does not name is worth a note.
pub fn xid(code: u32) -> Xid {
    let unknown = Xid {
        code,
        advice: Advice::Note,
        meaning: "not in the table",
    };
    let row = TABLE.binary_search_by_key(&code, |row| row.code);
    row.ok()
        .and_then(|at| TABLE.get(at))
        .copied()
        .unwrap_or(unknown)
}

const fn row(code: u32, advice: Advice, meaning: &'static str) -> Xid {
    Xid {
        code,
        advice,
        meaning,
    }
}

use Advice::{Drain, Fault, Ignore, Note};

/// In the order of the numbers.
pub(super) const TABLE: &[Xid] = &[
    row(8, Note, "the GPU stopped processing a channel"),
    row(
        13,
        Note,
        "graphics engine exception, nearly always the application's",
    ),
    row(
        31,
        Note,
        "memory page fault, an illegal access by the application",
    ),
    row(
        32,
        Note,
        "corrupted push buffer stream, usually the application's",
    ),
    row(
        43,
        Note,
        "a channel was reset after an error of the application",
    ),
    row(
        45,
        Note,
        "channels removed, as when a process is killed; follows other errors",
    ),
    row(46, Fault, "the GPU stopped processing; it needs a reset"),
    // Data is lost; 63 or 64 and 94 or 95 follow where the memory can be repaired.
    row(48, Fault, "uncorrectable (double bit) memory error"),
    // Unused in the newest catalogue; on the parts that raise it clocks are stuck until a reset.
    row(61, Drain, "internal micro-controller breakpoint"),
    row(
        62,
        Fault,
        "internal micro-controller halt; the GPU needs a reset",
    ),
    // The catalogue ignores the record itself; the spare row comes with the next reset, so the
    // slot is given back for one before the worn row fails for good.
    row(
        63,
        Drain,
        "a memory row is recorded for remapping at the next reset",
    ),
    row(64, Fault, "recording a memory row for remapping failed"),
    row(
        69,
        Note,
        "graphics engine class error, usually the application's",
    ),
    row(74, Fault, "NVLink error"),
    row(79, Fault, "the GPU has fallen off the bus"),
    // No action in the catalogue: nothing is lost yet. It is the trend we look for ourselves.
    row(92, Drain, "high rate of corrected memory errors"),
    // Only the process that met the error dies (and exits); the memory is offlined until a reset.
    row(94, Drain, "contained memory error"),
    row(95, Fault, "uncontained memory error; the GPU needs a reset"),
    row(106, Ignore, "test message"),
    row(107, Ignore, "test message"),
    row(109, Fault, "context switch timeout; the GPU needs a reset"),
    row(110, Fault, "security fault; the GPU needs a reset"),
    row(
        119,
        Fault,
        "the GPU's firmware does not answer (GSP RPC timeout)",
    ),
    row(120, Fault, "error in the GPU's firmware (GSP)"),
    row(121, Note, "corrected error on the chip-to-chip link"),
    row(136, Fault, "NVLink training failed"),
    row(
        137,
        Note,
        "NVLink privilege error, usually of a peer's application",
    ),
    row(
        140,
        Fault,
        "unrecovered memory error; the GPU needs a reset",
    ),
    row(143, Fault, "the GPU could not be initialised"),
    // Fatal or not depends on a sub-code that NVML does not hand out; a fatal one brings its own
    // process down (45) or 154 and an exit.
    row(144, Drain, "NVLink error (SAW)"),
    row(145, Drain, "NVLink error (RLW)"),
    row(146, Drain, "NVLink error (TLW)"),
    row(147, Drain, "NVLink error (TREX)"),
    row(148, Drain, "NVLink error (NVLPW_CTRL)"),
    row(149, Drain, "NVLink error (NETIR)"),
    row(150, Drain, "NVLink error (MSE)"),
    // Repeats what another Xid already said.
    row(154, Note, "the GPU's recovery action changed"),
    row(
        155,
        Fault,
        "NVLink error defined by software; the GPU needs a reset",
    ),
    row(156, Drain, "a resource is retired at the next reset"),
    row(157, Drain, "retiring a resource failed"),
    row(158, Fault, "fatal timeout; the GPU needs a reset"),
    row(160, Drain, "a memory channel is marked for repair"),
    row(161, Drain, "marking a memory channel for repair failed"),
    row(171, Fault, "uncorrectable memory error, in DRAM"),
    row(172, Fault, "uncorrectable memory error, in SRAM"),
];
