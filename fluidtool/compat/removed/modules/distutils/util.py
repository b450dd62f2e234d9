"""`distutils.util`."""

TRUE, FALSE = ["y", "yes", "t", "true", "on", "1"], ["n", "no", "f", "false", "off", "0"]


def strtobool(val: str) -> int:
    """1 or 0 for a word that means yes or no; raises ValueError for others."""
    if val.lower() in TRUE:
        return 1
    if val.lower() in FALSE:
        return 0
    raise ValueError(f"invalid truth value {val.lower()!r}")
