"""`fluid.contrib.decoder`: one description of a step, for training and for beam search."""

from fluidtool.fluid.contrib.decoder.decoders import BeamSearchDecoder, TrainingDecoder
from fluidtool.fluid.contrib.decoder.state_cell import InitState, StateCell
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.decoder", __all__)
