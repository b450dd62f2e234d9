"""The native engine: regions compiled to kernel calls that a small C library runs in one call (docs/native.md).

It is optional: without the compiled library (no compiler at installation, FLUIDTOOL_NATIVE=0) numpy computes everything.
"""
