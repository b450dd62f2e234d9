"""`paddle.fluid.dygraph`: packages that have classes of dynamic graphs can be imported, and their static graphs used.

Dynamic graphs themselves are not supported: making a layer or entering `guard` raises UnsupportedOperatorError.
"""
