//! Newtypes for names and numbers: nodes, ranks, tasks, machines.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! text {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

number! {
    /// A node's place in its pool, from 0; node 0 is the head.
    NodeIndex(u32)
}
number! {
    /// A machine's number among the machines that were launched for its pool, from 0. It can differ
    /// from the index of the machine's node, if the pool has started with a part of its nodes
    /// ([`Nodes::partial`](crate::spec::Nodes::partial)) or the node has joined later.
    MachineNumber(u32)
}
number! {
    /// A worker's index in its pool, from 0: `node * workers_per_node + worker`.
    Rank(u32)
}
number! {
    /// A generation: one life of the pool's world, from 1.
    Generation(u64)
}
number! {
    /// The number of a task. A pool never uses a number twice.
    TaskId(u64)
}
number! {
    /// The number of a try at a task, from 1.
    Attempt(u32)
}

text! {
    /// The id of a pool, unique among all pools of all clients.
    PoolId
}
text! {
    /// The id of one intent to launch one machine. A provider that receives the same launch id
    /// twice starts one machine.
    LaunchId
}
text! {
    /// The id of a machine, as its provider writes it.
    MachineId
}
text! {
    /// The id of an offer, as its provider writes it, unique among the offers of the provider.
    OfferId
}

impl PoolId {
    /// A new id: `p-` and 10 random characters, valid in file names, labels and host names.
    pub fn random() -> Self {
        Self(format!("p-{}", random_text(10)))
    }
}

impl LaunchId {
    /// The id of a try to launch this machine of this pool: the same throughout the try, another
    /// one for the next try.
    pub fn of(pool: &PoolId, number: MachineNumber, attempt: Attempt) -> Self {
        Self(format!("{pool}-n{number}-a{attempt}"))
    }
}

fn random_text(length: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    (0..length).map(|_| char::from(ALPHABET[usize::from(rand::random::<u8>()) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_ids_differ_and_launch_ids_contain_them() {
        let (a, b) = (PoolId::random(), PoolId::random());
        assert_ne!(a, b);
        assert_eq!(LaunchId::of(&a, MachineNumber(3), Attempt(1)).as_str(), format!("{a}-n3-a1"));
    }
}
