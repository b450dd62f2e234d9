"""`fluid.incubate.fleet.utils`: programs in files, Hadoop's files, and trainers that wait for each other by them."""

from fluidtool.fluid.offers import refuse_other_names

__getattr__ = refuse_other_names("paddle.fluid.incubate.fleet.utils", ["fleet_barrier_util", "hdfs", "utils"])
