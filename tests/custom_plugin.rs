//! The plugins of the example meet the plugin contract.

#[path = "../examples/custom_plugin.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's own pool is not started here")]
mod example;

use example::{TaskCounter, greeting};
use skyward::testkit::plugin_suite;

#[test]
fn the_example_plugins_pass_the_suite() {
    plugin_suite::all(&TaskCounter { first: 10 }).unwrap();
    plugin_suite::all(&greeting()).unwrap();
}
