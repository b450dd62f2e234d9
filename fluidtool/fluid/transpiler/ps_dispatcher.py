"""Rules that assign parameters to servers, under the name of Paddle's module."""

from fluidtool.distribute.dispatchers import HashName, PSDispatcher, RoundRobin

__all__ = ["HashName", "PSDispatcher", "RoundRobin"]
