def second() -> int:
    return 2
