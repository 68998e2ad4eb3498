//! One row a trajectory. `tokens`, `logprobs`, `versions` and `generated` have one element a token
//! after the prompt, turn by turn, each turn's tool result after what was generated; a tool's tokens
//! have logprob 0, version 0 and `generated` false.
use super::name;
use parquet::basic::Compression;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use robust_proto::v1;
use std::fs::File;
use std::io;
use std::sync::Arc;

const SCHEMA: &str = "
message trajectory {
  required binary trajectory (UTF8);
  required int64 batch;
  required int32 group;
  required int32 member;
  required binary state (UTF8);
  required group prompt_ids (LIST) { repeated group list { required int32 element; } }
  required group tokens (LIST) { repeated group list { required int32 element; } }
  required group logprobs (LIST) { repeated group list { required float element; } }
  required group versions (LIST) { repeated group list { required int64 element; } }
  required group generated (LIST) { repeated group list { required boolean element; } }
  required group tool_calls (LIST) { repeated group list { required binary element (UTF8); } }
  required group tool_results (LIST) { repeated group list { required binary element (UTF8); } }
  optional double reward;
  required binary answer (UTF8);
  required int64 oldest_version;
  optional int64 consumed_by;
  optional int64 staleness;
}";

/// Rows held in memory until they are written as one group.
const ROWS: usize = 1000;

/// Writes a Parquet file.
pub struct Writer {
    file: SerializedFileWriter<File>,
    rows: Vec<v1::Trajectory>,
}

type Group<'a> = SerializedRowGroupWriter<'a, File>;

impl Writer {
    /// A file with the schema and no rows yet.
    pub fn new(file: File) -> io::Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(io::Error::other)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let properties = Arc::new(properties.build());
        let file = SerializedFileWriter::new(file, schema, properties).map_err(io::Error::other)?;
        Ok(Self {
            file,
            rows: Vec::new(),
        })
    }

    /// Adds a row.
    pub fn put(&mut self, t: &v1::Trajectory) -> io::Result<()> {
        self.rows.push(t.clone());
        match self.rows.len() >= ROWS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes what is left, and the file's footer.
    pub fn close(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.finish().map_err(io::Error::other)?;
        self.file.inner().sync_all()
    }

    fn flush(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        self.group(&rows).map_err(io::Error::other)
    }

    fn group(&mut self, rows: &[v1::Trajectory]) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        let text = |s: &str| ByteArray::from(s.as_bytes().to_vec());
        let ids = |ids: &[u32]| ids.iter().map(|&id| id as i32).collect::<Vec<_>>();
        let g = &mut group;
        all::<ByteArrayType>(g, rows, |t| text(&name(t)))?;
        all::<Int64Type>(g, rows, |t| t.batch as i64)?;
        all::<Int32Type>(g, rows, |t| t.group as i32)?;
        all::<Int32Type>(g, rows, |t| t.member as i32)?;
        all::<ByteArrayType>(g, rows, |t| text(&t.state))?;
        lists::<Int32Type>(g, rows, |t| ids(&t.prompt_ids))?;
        lists::<Int32Type>(g, rows, |t| tokens(t).map(|token| token.0 as i32).collect())?;
        lists::<FloatType>(g, rows, |t| tokens(t).map(|token| token.1).collect())?;
        lists::<Int64Type>(g, rows, |t| tokens(t).map(|token| token.2 as i64).collect())?;
        lists::<BoolType>(g, rows, |t| tokens(t).map(|token| token.3).collect())?;
        lists::<ByteArrayType>(g, rows, |t| {
            t.turns.iter().map(|n| text(&n.tool_call)).collect()
        })?;
        lists::<ByteArrayType>(g, rows, |t| {
            t.turns.iter().map(|n| text(&n.tool_result)).collect()
        })?;
        some::<DoubleType>(g, rows, |t| t.reward)?;
        all::<ByteArrayType>(g, rows, |t| text(&t.answer))?;
        all::<Int64Type>(g, rows, |t| t.oldest_version as i64)?;
        some::<Int64Type>(g, rows, |t| t.consumed_by.map(|n| n as i64))?;
        some::<Int64Type>(g, rows, |t| t.staleness.map(|n| n as i64))?;
        group.close()?;
        Ok(())
    }
}

/// Token, logprob, version, whether the model generated it.
fn tokens(t: &v1::Trajectory) -> impl Iterator<Item = (u32, f32, u64, bool)> + '_ {
    t.turns.iter().flat_map(|turn| {
        let generated = turn.spans.iter().flat_map(|span| {
            let logprobs = span.logprobs.iter().copied().chain(std::iter::repeat(0.0));
            let pairs = span.ids.iter().zip(logprobs);
            pairs.map(|(&id, logprob)| (id, logprob, span.version, true))
        });
        generated.chain(turn.tool_ids.iter().map(|&id| (id, 0.0, 0, false)))
    })
}

fn column<D: DataType>(
    group: &mut Group<'_>,
    values: &[D::T],
    levels: Option<(&[i16], Option<&[i16]>)>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General(
            "more columns than the schema has".into(),
        ));
    };
    let (defined, repeated) = match levels {
        Some((defined, repeated)) => (Some(defined), repeated),
        None => (None, None),
    };
    column.typed::<D>().write_batch(values, defined, repeated)?;
    column.close()
}

fn all<D: DataType>(
    group: &mut Group<'_>,
    rows: &[v1::Trajectory],
    of: impl Fn(&v1::Trajectory) -> D::T,
) -> Result<(), ParquetError> {
    let values: Vec<_> = rows.iter().map(of).collect();
    column::<D>(group, &values, None)
}

fn some<D: DataType>(
    group: &mut Group<'_>,
    rows: &[v1::Trajectory],
    of: impl Fn(&v1::Trajectory) -> Option<D::T>,
) -> Result<(), ParquetError> {
    let each: Vec<_> = rows.iter().map(of).collect();
    let defined: Vec<i16> = each.iter().map(|v| i16::from(v.is_some())).collect();
    let values: Vec<_> = each.into_iter().flatten().collect();
    column::<D>(group, &values, Some((&defined, None)))
}

/// A list's elements are defined at level 1 and repeat at level 1; an empty one is a level 0 alone.
fn lists<D: DataType>(
    group: &mut Group<'_>,
    rows: &[v1::Trajectory],
    of: impl Fn(&v1::Trajectory) -> Vec<D::T>,
) -> Result<(), ParquetError> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let list = of(row);
        if list.is_empty() {
            defined.push(0);
            repeated.push(0);
        }
        for (at, value) in list.into_iter().enumerate() {
            defined.push(1);
            repeated.push(i16::from(at > 0));
            values.push(value);
        }
    }
    column::<D>(group, &values, Some((&defined, Some(&repeated))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    fn trajectory(batch: u64, turns: Vec<v1::Turn>) -> v1::Trajectory {
        v1::Trajectory {
            batch,
            group: 1,
            member: 2,
            state: "running".to_owned(),
            prompt_ids: vec![5, 6],
            turns,
            ..Default::default()
        }
    }

    #[test]
    fn rows_read_back_with_their_lists_empty_ones_and_absent_values_too() {
        let span = v1::Span {
            ids: vec![7, 8],
            logprobs: vec![-0.5, -1.5],
            version: 3,
        };
        let turn = v1::Turn {
            spans: vec![span],
            tool_call: "1+1".to_owned(),
            tool_result: "2".to_owned(),
            tool_ids: vec![9],
            ..Default::default()
        };
        let mut ended = trajectory(1, vec![turn]);
        (ended.reward, ended.consumed_by, ended.staleness) = (Some(1.0), Some(2), Some(0));
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::new(file.reopen().unwrap()).unwrap();
        writer.put(&ended).unwrap();
        for batch in 2..=1500 {
            writer.put(&trajectory(batch, Vec::new())).unwrap();
        }
        writer.close().unwrap();
        let reader = SerializedFileReader::new(file.reopen().unwrap()).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|r| r.unwrap().to_string())
            .collect();
        assert_eq!(rows.len(), 1500);
        for part in [
            "trajectory: \"1.1.2\"",
            "tokens: [7, 8, 9]",
            "logprobs: [-5E-1, -1.5E0, 0E0]",
            "versions: [3, 3, 0]",
            "generated: [true, true, false]",
            "tool_calls: [\"1+1\"]",
            "reward: 1.0",
            "consumed_by: 2",
        ] {
            assert!(rows[0].contains(part), "{part} is not in {}", rows[0]);
        }
        assert!(rows[1499].contains("tokens: []"), "{}", rows[1499]);
        assert!(rows[1499].contains("reward: null"), "{}", rows[1499]);
    }
}
