"""`fluid.contrib.slim.nas`: a search for networks."""

from fluidtool.fluid.contrib.slim.nas.controller_server import ControllerServer
from fluidtool.fluid.contrib.slim.nas.light_nas_strategy import LightNASStrategy
from fluidtool.fluid.contrib.slim.nas.search_agent import SearchAgent
from fluidtool.fluid.contrib.slim.nas.search_space import SearchSpace
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["ControllerServer", "LightNASStrategy", "SearchAgent", "SearchSpace"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim.nas", __all__)
