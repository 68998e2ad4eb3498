//! What is published can be read until the next version of its parity replaces it.

use robust_proto::v1::ServedVersion;
use robust_transport::{Buffer, Cancel, FetchError, Part, RegionKey};

use super::fixture::{BYTES, CHUNK_BYTES, Source, bytes_of, transport};

fn read(from: &Source, served: &ServedVersion) -> Result<Vec<u8>, FetchError> {
    let (reader, into) = (transport(), Buffer::new(BYTES).unwrap());
    let region = served.region.as_ref().unwrap();
    let key = RegionKey::from_bytes(&region.key).unwrap();
    let all = [Part {
        src: 0,
        dst: 0,
        len: region.bytes,
    }];
    let addr = from.transport.addr();
    reader.fetch(addr, &key, &all, &into, &Cancel::new(), |_| ())?;
    Ok(into.with_bytes(<[u8]>::to_vec).unwrap())
}

#[test]
fn two_versions_can_be_read_and_the_one_after_them_withdraws_the_older() {
    let mut source = Source::start();
    let (first, second) = (source.publish(1), source.publish(2));
    assert_eq!(read(&source, &first).unwrap(), bytes_of(1));
    assert_eq!(read(&source, &second).unwrap(), bytes_of(2));
    let third = source.publish(3);
    assert!(read(&source, &first).is_err(), "its bytes are others now");
    assert_eq!(read(&source, &second).unwrap(), bytes_of(2));
    assert_eq!(read(&source, &third).unwrap(), bytes_of(3));
}

#[test]
fn a_version_that_cannot_be_written_is_not_published_and_the_next_attempt_is() {
    let mut source = Source::start();
    let first = source.publish(1);
    let too_long = vec![0; BYTES + 1];
    let publish = |to: &Buffer| to.write_at(0, &too_long);
    source.publisher.publish(3, publish).unwrap_err();
    assert!(read(&source, &first).is_err());
    let third = source.publish(3);
    assert_eq!(read(&source, &third).unwrap(), bytes_of(3));
}

#[test]
fn damaged_memory_differs_from_what_was_published_in_every_chunk() {
    let mut source = Source::start();
    let served = source.publish(1);
    source.publisher.damage(1);
    let (found, published) = (read(&source, &served).unwrap(), bytes_of(1));
    let chunks = found.chunks(CHUNK_BYTES).zip(published.chunks(CHUNK_BYTES));
    assert!(
        chunks
            .into_iter()
            .all(|(found, published)| found != published)
    );
}
