//! A rank's shard as a safetensors image, and the header of any such file.
//!
//! What varies from step to step (the step, the gang, the optimiser's count) is not in the image but in
//! the slot's seal, the message about it and the manifest: equal tensors give equal files. Images of
//! version 1 had it in their metadata.
use crate::slot::PAGE;
use crate::{CkptError, slot::Image};
use safetensors::tensor::Metadata;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// What an image's metadata says of its layout, as `format`.
pub const FORMAT: &str = "robust-shard";
/// Its version, as `version`; 1 can still be read.
pub const VERSION: u32 = 2;
/// The tensors of an image, in order: flat, F32.
pub const TENSORS: [&str; 3] = ["params", "adam_m", "adam_v"];

/// Which part of a model's flat buffer a rank's image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whose.
    pub rank: u32,
    /// Of how many.
    pub ranks: u32,
    /// Elements of the whole buffer.
    pub elements: usize,
}

impl Layout {
    /// The elements that it has.
    pub fn range(&self) -> Range<usize> {
        let (elements, ranks) = (self.elements as u128, u128::from(self.ranks.max(1)));
        let cut = |rank: u32| (elements * u128::from(rank) / ranks) as usize;
        cut(self.rank)..cut(self.rank + 1)
    }

    /// Bytes of each of its tensors.
    pub fn tensor_bytes(&self) -> usize {
        self.range().len() * 4
    }

    /// Bytes of the whole image.
    pub fn bytes(&self) -> u64 {
        (self.header().len() + self.tensor_bytes() * TENSORS.len()) as u64
    }

    /// What comes before the tensors: whole pages, so that they lie aligned for direct writes.
    pub fn header(&self) -> Vec<u8> {
        let range = self.range();
        let metadata = [
            ("format", FORMAT.to_owned()),
            ("version", VERSION.to_string()),
            ("rank", self.rank.to_string()),
            ("ranks", self.ranks.to_string()),
            ("first", range.start.to_string()),
            ("elements", self.elements.to_string()),
        ];
        let shape = [range.len() as u64];
        let tensor = |(index, name): (usize, &'static str)| {
            let bytes = self.tensor_bytes();
            let start = index * bytes;
            (name, "F32", &shape[..], start..start + bytes)
        };
        padded_header(&metadata, TENSORS.into_iter().enumerate().map(tensor))
    }
}

/// The header of an image of tensors (name, dtype as safetensors has it, shape, bytes from the header's
/// end on), in whole pages: so the tensors lie aligned for direct writes.
pub fn padded_header<'a>(
    metadata: &[(&str, String)],
    tensors: impl Iterator<Item = (&'a str, &'a str, &'a [u64], Range<usize>)>,
) -> Vec<u8> {
    let metadata: BTreeMap<&str, &String> = metadata.iter().map(|(k, v)| (*k, v)).collect();
    let mut root = serde_json::Map::new();
    root.insert("__metadata__".to_owned(), json!(metadata));
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [bytes.start, bytes.end];
        let tensor = json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        root.insert(name.to_owned(), tensor);
    }
    let mut text = serde_json::Value::Object(root).to_string().into_bytes();
    let padded = (text.len() + 8).next_multiple_of(PAGE) - 8;
    text.resize(padded, b' ');
    let mut image = (padded as u64).to_le_bytes().to_vec();
    image.append(&mut text);
    image
}

/// Larger headers are no model's.
const LIMIT: u64 = 256 << 20;

/// What a file's header says.
pub struct Header {
    /// Names, types, shapes and places of the tensors, from [`Self::data`] on.
    pub tensors: Metadata,
    /// Where the tensors' bytes begin in the file.
    pub data: u64,
    /// Length of the file.
    pub bytes: u64,
}

impl Image {
    /// Reads the header of the image; memory does not grow with the tensors.
    pub fn header(&self) -> Result<Header, CkptError> {
        let mut length = [0; 8];
        self.read_at(&mut length, 0)?;
        let length = u64::from_le_bytes(length);
        if length > LIMIT.min(self.bytes()) {
            return Err(CkptError::bad(self.path(), "it is no safetensors file"));
        }
        let mut text = vec![0; length as usize];
        self.read_at(&mut text, 8)?;
        parse(self.path(), &text, self.bytes())
    }
}

/// Reads it; memory does not grow with the tensors.
pub fn header(path: &Path) -> Result<Header, CkptError> {
    let reading = || CkptError::io("read", path);
    let mut file = File::open(path).map_err(reading())?;
    let bytes = file.metadata().map_err(reading())?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(reading())?;
    let length = u64::from_le_bytes(length);
    if length > LIMIT.min(bytes) {
        return Err(CkptError::bad(path, "it is no safetensors file"));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(reading())?;
    parse(path, &text, bytes)
}

fn parse(path: &Path, text: &[u8], bytes: u64) -> Result<Header, CkptError> {
    let tensors = serde_json::from_slice(text).map_err(|e| CkptError::bad(path, e.to_string()))?;
    let data = 8 + text.len() as u64;
    Ok(Header {
        tensors,
        data,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shards_tile_the_buffer() {
        for (elements, ranks) in [(10, 3), (7, 1), (2, 4), (1 << 33, 7)] {
            let range = |rank| {
                let layout = Layout {
                    rank,
                    ranks,
                    elements,
                };
                layout.range()
            };
            let shards: Vec<_> = (0..ranks).map(range).collect();
            assert_eq!(shards[0].start, 0);
            assert_eq!(shards.last().unwrap().end, elements);
            assert!(shards.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }

    #[test]
    fn an_image_is_a_safetensors_file_with_its_tensors_on_a_page() {
        let layout = Layout {
            rank: 1,
            ranks: 2,
            elements: 11,
        };
        let mut image = layout.header();
        assert_eq!(image.len(), PAGE);
        image.extend((0..layout.tensor_bytes() * 3).map(|i| i as u8));
        assert_eq!(image.len() as u64, layout.bytes());
        let file = safetensors::SafeTensors::deserialize(&image).unwrap();
        assert_eq!(file.tensor("adam_m").unwrap().data()[0], 24);
        assert_eq!(file.tensor("adam_m").unwrap().shape(), [6]);
    }
}
