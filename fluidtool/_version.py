"""The version, stated once: the packaging reads it from here."""

__version__ = "0.2.0"
