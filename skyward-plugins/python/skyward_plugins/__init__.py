"""The hooks of Skyward's plugins.

Each module is sent to workers on its own, so no module imports another one.
"""
