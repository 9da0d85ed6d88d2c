"""Calls within calls: what a payload submits while it runs, for other workers. Imported with a process's first call."""
