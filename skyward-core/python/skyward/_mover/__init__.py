"""The mover of a node: it reads files for the client, also while workers compute or have ended."""
