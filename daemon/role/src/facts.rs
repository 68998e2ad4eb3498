//! What a hello says, kept up to date while the role works.

use std::sync::{Arc, Mutex, PoisonError};

use robust_proto::v1::{Hello, ServedVersion};

/// What the hello says of this process; clones share it.
#[derive(Debug, Clone)]
pub struct Facts {
    hello: Arc<Mutex<Hello>>,
}

impl Facts {
    /// Begins with this hello; the link fills names and numbers in.
    pub fn new(hello: Hello) -> Self {
        Self {
            hello: Arc::new(Mutex::new(hello)),
        }
    }

    /// The hello of this moment.
    pub fn hello(&self) -> Hello {
        self.hello
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The state is of this step now; none: of no step.
    pub fn set_step(&self, step: Option<u64>) {
        self.hello
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .step = step;
    }

    /// This version can be read here now.
    pub fn set_served(&self, served: ServedVersion) {
        let mut hello = self.hello.lock().unwrap_or_else(PoisonError::into_inner);
        hello.version = Some(served.version);
        hello.served = Some(served);
    }
}
