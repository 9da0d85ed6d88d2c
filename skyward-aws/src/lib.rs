//! EC2 as a provider of Skyward: pools that rent accelerators by name.

mod address;
mod aws;
mod builder;
mod cache;
mod call;
mod capacity;
mod catalog;
mod client;
mod connect;
mod describe;
mod errors;
mod images;
mod launch;
mod lease;
#[cfg(test)]
mod loopback;
mod machines;
mod network;
mod offers;
mod options;
mod placement;
mod pool;
mod prices;
mod quota;
mod tags;
mod teardown;
mod timing;
mod trust;
mod user_data;

pub use aws::Aws;
pub use options::Addressing;
