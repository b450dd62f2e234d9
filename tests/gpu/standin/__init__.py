"""A strict stand-in for cupy 14.2, over numpy: for tests of what runs on GPUs, on machines without one.

It has the names and signatures of the real package (`names.json.xz`, which `read_names.py` reads from its wheel). It refuses
what the real one refuses: implicit conversion to numpy, arrays of numpy beside its own, arrays of a device that the thread
does not use, names and arguments that cupy lacks. Indices beyond the end wrap around, and of repeated ones in an assignment
the first wins. It counts what costs time on a GPU (`events.py`).

Not emulated: streams, memory pools, the rounding of GPU functions, float to int conversion of NaN.
"""

from tests.gpu.standin.events import EVENTS, Events
from tests.gpu.standin.installing import installed

__all__ = ["EVENTS", "Events", "installed"]
