"""The smallest payload: a function with typed arguments and a result."""

import skyward as sky


def hello(name: str) -> str:
    """Return a greeting that names the node on which this runs."""
    info = sky.instance_info()
    print(f"{name} is being greeted")
    return f"hello {name}, from node {info.node} of {info.total_nodes}"
