//! The generation of a pool's workers, and the port at which they meet.

use crate::ids::Generation;

/// The present generation. Each has a port of its own on the head.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    generation: Generation,
    /// The port of the generation; `None` before its workers are started.
    port: Option<u16>,
}

impl Rendezvous {
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// The port of a generation, if its workers were started before, or its head has reserved a
    /// port.
    pub(crate) fn port(&self, of: Generation) -> Option<u16> {
        self.port.filter(|_| self.generation == of)
    }

    /// The workers of a generation meet at this port.
    pub(crate) fn begin(&mut self, generation: Generation, port: u16) {
        (self.generation, self.port) = (generation, Some(port));
    }

    /// The head has another machine, and has reserved a port there: the workers of the present
    /// generation that are started from now on meet there.
    pub(crate) fn move_to(&mut self, port: u16) {
        self.port = Some(port);
    }
}

impl Default for Rendezvous {
    /// Before the first generation.
    fn default() -> Self {
        Self { generation: Generation(0), port: None }
    }
}
