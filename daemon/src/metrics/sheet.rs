//! Writes families of values with less ado.
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use std::fmt;

/// Names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One scrape under way. A family without a value is left out.
pub(super) struct Sheet<'a>(pub DescriptorEncoder<'a>);

impl Sheet<'_> {
    /// A family of values that go up and down.
    pub fn gauges(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            match labels.as_slice() {
                [] => family.encode_gauge(&value)?,
                labels => family.encode_family(&labels)?.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    /// One value that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        family.encode_gauge(&value)
    }

    /// One value that only goes up; `_total` is added to the name.
    pub fn counter_of(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        family.encode_counter::<Labels, f64, f64>(&value, None)
    }

    /// A family of values that only go up; `_total` is added to the name.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            match labels.as_slice() {
                [] => family.encode_counter::<Labels, u64, f64>(&value, None)?,
                labels => family
                    .encode_family(&labels)?
                    .encode_counter::<Labels, u64, f64>(&value, None)?,
            }
        }
        Ok(())
    }
}
