//! EC2 as a provider of Skyward: pools that rent accelerators by name.

mod address;
mod assign;
mod aws;
mod builder;
mod cache;
mod call;
mod capacity;
mod catalog;
mod client;
mod clock;
mod connect;
mod describe;
mod doubt;
mod entry;
mod errors;
mod images;
mod launch;
mod lease;
mod list;
#[cfg(test)]
mod loopback;
mod machines;
mod network;
mod offers;
mod options;
mod parking;
mod partition;
mod placement;
mod pool;
mod prices;
mod proxy;
mod quota;
mod reached;
mod tags;
mod teardown;
mod timing;
mod trust;
mod user_data;

pub use aws::Aws;
pub use options::Addressing;
