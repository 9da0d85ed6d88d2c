//! From a bare machine to one on which an agent can start.
