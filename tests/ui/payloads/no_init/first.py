def first() -> int:
    return 1
