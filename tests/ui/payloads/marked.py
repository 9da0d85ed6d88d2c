"""A file with a byte order mark."""


def marked(a: int) -> int:
    """Return what it was given."""
    return a
