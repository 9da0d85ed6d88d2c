"""The agent: starts, watches and ends the workers of one node."""
