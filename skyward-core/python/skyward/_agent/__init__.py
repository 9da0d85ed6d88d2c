"""The agent: supervises the workers of one node."""
