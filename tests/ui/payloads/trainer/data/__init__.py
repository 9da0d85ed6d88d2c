"""The data."""


def digits() -> list[int]:
    """Return ten of them."""
    return list(range(10))
