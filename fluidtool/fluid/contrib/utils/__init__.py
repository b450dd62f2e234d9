"""`fluid.contrib.utils`: files on Hadoop, and models whose tables are spread over servers."""

from fluidtool.fluid.contrib.utils import hdfs_utils as hdfs_utils
from fluidtool.fluid.contrib.utils import lookup_table_utils as lookup_table_utils
from fluidtool.fluid.contrib.utils.hdfs_utils import HDFSClient, multi_download, multi_upload
from fluidtool.fluid.contrib.utils.lookup_table_utils import (
    convert_dist_to_sparse_program,
    load_persistables_for_increment,
    load_persistables_for_inference,
)
from fluidtool.fluid.offers import refuse_other_names

__all__ = [
    "HDFSClient",
    "convert_dist_to_sparse_program",
    "load_persistables_for_increment",
    "load_persistables_for_inference",
    "multi_download",
    "multi_upload",
]

__getattr__ = refuse_other_names("paddle.fluid.contrib.utils", __all__)
