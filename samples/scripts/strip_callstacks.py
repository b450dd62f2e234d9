"""Remove the `op_callstack` attributes, which name the author's folders, from saved programs.

Usage: python strip_callstacks.py PROGRAM_FILE...
"""

import sys
from pathlib import Path

from fluidtool.proto.framework_pb2 import ProgramDesc

for path in map(Path, sys.argv[1:]):
    program = ProgramDesc.FromString(path.read_bytes())
    for block in program.blocks:
        for op in block.ops:
            kept = [attr for attr in op.attrs if attr.name != "op_callstack"]
            del op.attrs[:]
            op.attrs.extend(kept)
    path.write_bytes(program.SerializeToString(deterministic=True))
