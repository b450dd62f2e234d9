"""Fleets with parameter servers. There is no pslib, Baidu's own server."""

from fluidtool.fluid.offers import refuse_other_names

__getattr__ = refuse_other_names("paddle.fluid.incubate.fleet.parameter_server", ["distribute_transpiler"])
