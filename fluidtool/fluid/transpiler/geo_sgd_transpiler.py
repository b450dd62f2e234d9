"""GeoSgdTranspiler (Paddle 1.6 to 1.8): trainers optimize separately and exchange changes through servers."""

from __future__ import annotations

from typing import Any

from fluidtool.distribute.geo import GeoJob
from fluidtool.fluid.transpiler.distribute_config import DistributeTranspilerConfig, check_config
from fluidtool.fluid.transpiler.distribute_transpiler import DistributeTranspiler


class GeoSgdTranspiler(DistributeTranspiler):
    """DistributeTranspiler with config.geo_sgd_mode; always asynchronous."""

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        config = DistributeTranspilerConfig() if config is None else check_config(config)
        config.geo_sgd_mode = True
        super().__init__(config)

    def _get_vars_info(self) -> dict[str, dict[str, Any]]:
        """What a trainer's communicator needs to know, by parameter."""
        job = self._transpiled()
        assert isinstance(job, GeoJob)
        return dict(job.variables())


__all__ = ["GeoSgdTranspiler"]
