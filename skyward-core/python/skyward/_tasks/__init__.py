"""How a worker receives tasks over its connection, and runs them."""
