"""The native engine: regions of a program compiled to kernel calls that a small C library runs in one go (docs/native.md).

It is optional: without the compiled library (no compiler at installation, FLUIDTOOL_NATIVE=0) numpy computes everything.
"""
