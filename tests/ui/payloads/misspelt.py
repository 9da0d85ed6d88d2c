"""Names that `skyward` does not have."""

import skyward as sky


@sky.integrations.torch(backnd="gloo")
def train(samples: list[int]) -> list[int]:
    return sky.shrad(samples)
