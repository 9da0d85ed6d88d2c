import statistics
from dataclasses import dataclass


@dataclass
class Summary:
    mean: float
    spread: float


def describe(values: list[float], digits: int = 3) -> Summary:
    """Mean and standard deviation of the values, rounded to so many digits."""
    return Summary(round(statistics.fmean(values), digits), round(statistics.pstdev(values), digits))
