//! One source, one puller, TCP with TLS over loopback: beside a plain copy over TCP of as many bytes.
use super::copies::tcp_copy;
use super::cores::{cpu, steadily};
use super::node::Node;
use super::pair::Pair;
use super::way::Way;
use super::{BenchArgs, Report};

/// Of all bytes at once, and of a quarter.
const SIZES: [(&str, u64); 2] = [("1g", 1), ("256m", 4)];

/// `tls_pull_*` and `tls_nodigest_*`; `tls_over_plain_tcp_*`: the pull, digests and all, over a plain copy
/// that looks at nothing; and the processor seconds that a GB takes of either, both sides together.
pub(crate) fn measure(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    for (name, part) in SIZES {
        let bytes = (args.pair_mib << 20) / part;
        let (size, gb) = (bytes.to_string(), bytes as f64 / 1e9);
        let mut pair = Pair::start(bytes, &Way::tls())?;
        let source = Node::start(0, None, &["tcp-source", "--bytes", &size])?;
        let mut to = vec![2_u8; usize::try_from(bytes)?];
        for _ in 0..args.rounds {
            let (raw, pull, sealed, plain, open) = steadily(report, || {
                pair.trainer.publish()?;
                let before = pair.cpu()?;
                let (raw, pull) = pair.pull()?;
                // Twice without a look at digests, and once with one.
                let sealed = (pair.cpu()? - before) / (3.0 * gb);
                let used =
                    || anyhow::Ok((cpu(source.pid())? + cpu(std::process::id())?).as_secs_f64());
                let before = used()?;
                let plain = tcp_copy(&source, &mut to)?;
                Ok((raw, pull, sealed, plain, (used()? - before) / gb))
            })?;
            report.add(format!("tls_pull_{name}_gb_per_s"), pull);
            report.add(format!("tls_nodigest_{name}_gb_per_s"), raw);
            report.add(format!("plain_tcp_{name}_gb_per_s"), plain);
            report.add(format!("tls_cpu_s_per_gb_{name}"), sealed);
            report.add(format!("plain_tcp_cpu_s_per_gb_{name}"), open);
        }
        report.ratio(
            &format!("tls_over_plain_tcp_{name}"),
            &format!("tls_pull_{name}_gb_per_s"),
            &format!("plain_tcp_{name}_gb_per_s"),
        );
    }
    Ok(())
}
