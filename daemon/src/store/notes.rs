//! Notes on incidents, and what the receiver of the webhook has been told.
use super::codec::{decode, encode};
use super::error::StoreError;
use super::keys::Key;
use super::parts::Get;
use super::types::{StoredNote, Told};
use super::{Durable, Store};

impl Store {
    /// Keeps all notes of an incident, in place of those that were kept before. False: there is no such incident, and nothing is kept.
    pub fn put_notes(&self, incident: u64, notes: Vec<StoredNote>) -> Durable<bool> {
        self.submit(move |txn| {
            let is_known = txn.has(&Key::Incident(incident))?;
            if is_known {
                txn.put(&Key::Notes(incident), &encode("notes", &notes)?)?;
            }
            Ok(is_known)
        })
    }

    /// The notes of each incident that has some, by its number, oldest first.
    pub fn notes(&self) -> Result<Vec<(u64, Vec<StoredNote>)>, StoreError> {
        self.read(|reader| {
            let mut found = Vec::new();
            for key in reader.keys(&Key::Notes(0), &Key::Notes(u64::MAX)) {
                let key = key?;
                if let (Some(Key::Notes(incident)), Some(bytes)) =
                    (Key::decode(&key), reader.get(&key)?)
                {
                    found.push((incident, decode(reader.path(), &key, &bytes)?));
                }
            }
            Ok(found)
        })
    }

    /// Keeps what the receiver of the webhook has been told. Nobody waits for it: what is lost is told once more.
    pub fn put_told(&self, told: Told) {
        drop(self.submit_at_leisure(move |txn| txn.put(&Key::Told, &encode("told", &told)?)));
    }

    /// What the receiver of the webhook has been told; none where there never was one.
    pub fn told(&self) -> Result<Option<Told>, StoreError> {
        let key = Key::Told.encode();
        self.read(|reader| {
            let bytes = reader.get(&key)?;
            bytes
                .map(|bytes| decode(reader.path(), &key, &bytes))
                .transpose()
        })
    }
}
