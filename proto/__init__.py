"""Protocol-buffer messages: the program files (`framework.proto`), the parameter-server wire (`send_recv.proto`), and
descriptions of text files that are data (`data_feed.proto`).

The generated modules are committed; `python proto/generate.py` makes them again. `enums` has their enumerations without
protobuf, for everybody who only needs the numbers.
"""

if __name__ == "proto":
    raise ImportError("this package is imported as fluidtool.proto, never as proto")
