"""The process of a worker: its start, its signals, its output, its end."""
