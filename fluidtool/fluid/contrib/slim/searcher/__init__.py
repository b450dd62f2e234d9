"""`fluid.contrib.slim.searcher`: what draws the next tokens of a search."""

from fluidtool.fluid.contrib.slim.searcher.controller import EvolutionaryController, SAController
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["EvolutionaryController", "SAController"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim.searcher", __all__)
