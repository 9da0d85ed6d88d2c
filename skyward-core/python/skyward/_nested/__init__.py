"""Nested calls: functions that a running payload submits to other workers.

The package is imported at the first call of a process.
"""
