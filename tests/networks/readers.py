"""Networks that read their batches from Python."""


def net_py_reader_with_double_buffer(fluid):
    reader = fluid.layers.py_reader(
        capacity=3, shapes=[(-1, 2), (-1, 1)], dtypes=["float32", "int64"], lod_levels=[0, 1], name="buffered"
    )
    picture, _ = fluid.layers.read_file(reader)
    fluid.layers.fc(picture, 3)


def net_py_reader_without_buffer(fluid):
    reader = fluid.layers.py_reader(
        capacity=3, shapes=[[-1, 2]], dtypes=["float64"], name="plain", use_double_buffer=False
    )
    fluid.layers.scale(fluid.layers.read_file(reader), 2.0)


def net_py_reader_by_data(fluid):
    x = fluid.layers.data("x", [2])
    y = fluid.data("y", [None, 1], "int64", lod_level=1)
    reader = fluid.layers.create_py_reader_by_data(3, [x, y], name="by_data")
    fluid.layers.read_file(reader)


def net_double_buffer_at_a_place(fluid):
    reader = fluid.layers.py_reader(
        capacity=3, shapes=[[-1, 2]], dtypes=["float32"], name="placed", use_double_buffer=False
    )
    fluid.layers.read_file(fluid.layers.double_buffer(reader, name="ahead"))
    fluid.layers.read_file(fluid.layers.double_buffer(reader))
