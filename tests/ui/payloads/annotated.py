"""Functions with plain annotations."""


def train(name: str, epochs: int, rate: float, data: bytes | None = None) -> str:
    """Return text."""
    return f"{name} {epochs} {rate} {data!r}"


def score(model: str) -> float:
    """Return a number."""
    return float(len(model))


def save(path: str) -> None:
    """Return nothing."""
    print(path)
