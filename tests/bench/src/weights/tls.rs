//! One source, one puller, TCP with TLS over loopback: beside a plain copy over TCP of as many bytes.
use super::copies::tcp_copy;
use super::cores::{cpu, steadily};
use super::node::Node;
use super::pair::Pair;
use super::way::Way;
use super::{Report, WeightsArgs};

/// Of all bytes at once, and of a quarter.
const SIZES: [(&str, u64); 2] = [("1g", 1), ("256m", 4)];

/// `tls_pull_*` and `tls_nodigest_*`; `tls_over_plain_tcp_*`: the pull, digests and all, over a plain copy
/// that looks at nothing, with sockets as the system makes them; `tls_over_tuned_tcp_*`: the same with
/// sockets that are set up as the road's; and the processor seconds that a GB takes, both sides together.
pub(crate) fn measure(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    for (name, part) in SIZES {
        let bytes = (args.pair_mib << 20) / part;
        let size = bytes.to_string();
        let mut pair = Pair::start(bytes, &Way::tls())?;
        pair.settle()?;
        let words = ["--bytes", &size, "--tuned"];
        let (plain, tuned) = (Node::tcp_source(&words[..2])?, Node::tcp_source(&words)?);
        let mut to = vec![2_u8; usize::try_from(bytes)?];
        for _ in 0..args.rounds {
            let round = steadily(report, || Round::of(&mut pair, [&plain, &tuned], &mut to))?;
            report.add(format!("tls_pull_{name}_gb_per_s"), round.pull);
            report.add(format!("tls_nodigest_{name}_gb_per_s"), round.raw);
            report.add(format!("tls_cpu_s_per_gb_{name}"), round.pull_cpu);
            for (kind, copy) in KINDS.into_iter().zip(round.copies) {
                report.add(format!("{kind}_tcp_{name}_gb_per_s"), copy.gb_per_s);
                report.add(format!("{kind}_tcp_cpu_s_per_gb_{name}"), copy.cpu);
            }
        }
        for kind in KINDS {
            report.ratio(
                &format!("tls_over_{kind}_tcp_{name}"),
                &format!("tls_pull_{name}_gb_per_s"),
                &format!("{kind}_tcp_{name}_gb_per_s"),
            );
        }
    }
    Ok(())
}

/// Sockets of a copy over TCP: as the system makes them, and as the road does.
const KINDS: [&str; 2] = ["plain", "tuned"];

/// What was measured one right after the other.
struct Round {
    raw: f64,
    pull: f64,
    /// Processor seconds a GB.
    pull_cpu: f64,
    copies: [Copied; 2],
}

/// A copy over TCP.
struct Copied {
    gb_per_s: f64,
    /// Processor seconds a GB.
    cpu: f64,
}

impl Round {
    fn of(pair: &mut Pair, sources: [&Node; 2], to: &mut [u8]) -> anyhow::Result<Round> {
        pair.trainer.publish()?;
        let before = pair.cpu()?;
        let (raw, pull) = pair.pull()?;
        // Twice without a look at digests, and once with one.
        let pull_cpu = (pair.cpu()? - before) / (3.0 * to.len() as f64 / 1e9);
        let [plain, tuned] = sources.map(|source| Copied::from(source, to));
        let copies = [plain?, tuned?];
        Ok(Round {
            raw,
            pull,
            pull_cpu,
            copies,
        })
    }
}

impl Copied {
    fn from(source: &Node, to: &mut [u8]) -> anyhow::Result<Copied> {
        let used = || anyhow::Ok((cpu(source.pid())? + cpu(std::process::id())?).as_secs_f64());
        let before = used()?;
        let gb_per_s = tcp_copy(source, to)?;
        let cpu = (used()? - before) / (to.len() as f64 / 1e9);
        Ok(Copied { gb_per_s, cpu })
    }
}
