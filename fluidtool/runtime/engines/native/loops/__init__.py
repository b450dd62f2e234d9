"""Loops whose steps run without Python: the operators of a block as instructions of src/loops.c.

`instructions.py` makes instructions of operators, `values.py` has values in the library's form and the memory that they lie in,
`running.py` runs a loop.
"""
