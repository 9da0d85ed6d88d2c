"""The mover of a node: it moves files and messages, also while workers compute or have ended."""
