"""`fluid.incubate.fleet`: one interface to jobs with parameter servers or with collectives (Paddle 1.8.5)."""

from fluidtool.fluid.offers import refuse_other_names

__getattr__ = refuse_other_names("paddle.fluid.incubate.fleet", ["base", "collective", "parameter_server"])
