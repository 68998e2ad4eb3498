//! Small tables: living processes and the index of checkpoints.
use super::codec::encode;
use super::error::StoreError;
use super::keys::Key;
use super::types::{StoredCheckpoint, StoredInstance};
use super::{Durable, Store};
use robust_shared::ids::{Incarnation, Step};

impl Store {
    /// Adds a living process, or replaces what is known of it.
    pub fn put_instance(&self, instance: StoredInstance) -> Durable<()> {
        self.submit(move |txn| {
            let key = Key::Instance(instance.incarnation.0);
            txn.put(&key, &encode("instance", &instance)?)
        })
    }

    /// Removes a process that ended.
    pub fn remove_instance(&self, incarnation: Incarnation) -> Durable<()> {
        self.submit(move |txn| txn.remove(&Key::Instance(incarnation.0)))
    }

    /// Processes that lived when last heard of, by incarnation.
    pub fn instances(&self) -> Result<Vec<StoredInstance>, StoreError> {
        self.values(Key::Instance(0), Key::Instance(u64::MAX))
    }

    /// Adds a complete checkpoint to the index.
    pub fn put_checkpoint(&self, checkpoint: StoredCheckpoint) -> Durable<()> {
        self.submit(move |txn| {
            let key = Key::Checkpoint(checkpoint.step.0);
            txn.put(&key, &encode("checkpoint", &checkpoint)?)
        })
    }

    /// Removes a checkpoint from the index.
    pub fn remove_checkpoint(&self, step: Step) -> Durable<()> {
        self.submit(move |txn| txn.remove(&Key::Checkpoint(step.0)))
    }

    /// The index of checkpoints, oldest first.
    pub fn checkpoints(&self) -> Result<Vec<StoredCheckpoint>, StoreError> {
        self.values(Key::Checkpoint(0), Key::Checkpoint(u64::MAX))
    }
}
