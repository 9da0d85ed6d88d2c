# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "numpy"
#   "scipy",
# ]
# ///


def train() -> None:
    """Never runs."""
