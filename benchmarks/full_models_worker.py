"""One implementation, running one saved model in rounds (rounds.py): python full_models_worker.py ENGINE FOLDER THREADS.

ENGINE is `fluidtool`, or `paddle` (1.8.5 with its graph passes and MKL-DNN; runs on Python 3.7 too). FOLDER holds
`__model__`, `__params__`, `case.json` (names of feeds) and `golden.npz` (`feed_I`, `feed_I_lod_J`, `fetch_I`).
"""

import json
import os
import sys
import time

NO_PASSES = ("seq2seq_beam",)  # Paddle 1.8.5's own pass fc_gru_fuse fails on it


def paddle_runner(folder, threads, feeds):
    from paddle.fluid.core import AnalysisConfig, create_paddle_predictor

    config = AnalysisConfig(os.path.join(folder, "__model__"), os.path.join(folder, "__params__"))
    config.disable_gpu()
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(threads)
    config.switch_ir_optim(os.path.basename(folder) not in NO_PASSES)
    config.switch_use_feed_fetch_ops(False)
    config.switch_specify_input_names(True)
    config.enable_mkldnn()
    predictor = create_paddle_predictor(config)

    def run():
        for name, (array, lod) in feeds.items():
            tensor = predictor.get_input_tensor(name)
            tensor.copy_from_cpu(array)
            if lod:
                tensor.set_lod(lod)
        predictor.zero_copy_run()
        return [predictor.get_output_tensor(name).copy_to_cpu() for name in predictor.get_output_names()]

    return run


def fluidtool_runner(folder, feeds):
    import numpy

    import fluidtool
    from fluidtool.tensor import LoDTensor

    model = fluidtool.load(folder, params=os.path.join(folder, "__params__"))
    given = {name: LoDTensor(array, lod) if lod else array for name, (array, lod) in feeds.items()}
    return lambda: [numpy.asarray(value) for value in model.run(given).values()]


def main():
    engine, folder, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FLUIDTOOL_THREADS"):
        os.environ[name] = str(threads)
    import numpy

    with open(os.path.join(folder, "case.json")) as file:
        names = [feed["name"] for feed in json.load(file)["feeds"]]
    stored = dict(numpy.load(os.path.join(folder, "golden.npz")))
    feeds = {}  # name -> (array, offsets by level)
    for i, name in enumerate(names):
        levels = sorted(key for key in stored if key.startswith(f"feed_{i}_lod_"))
        feeds[name] = (stored[f"feed_{i}"], [[int(n) for n in stored[key]] for key in levels])
    run = paddle_runner(folder, threads, feeds) if engine == "paddle" else fluidtool_runner(folder, feeds)
    error = 0.0
    for i, value in enumerate(run()):
        wanted = stored[f"fetch_{i}"].astype("float64")
        if value.shape != wanted.shape:
            error = float("inf")
        elif value.dtype.kind == "f" and wanted.size:
            error = max(error, float(abs(value - wanted).max() / max(abs(wanted).max(), 1e-30)))
    print(json.dumps({"error": error}), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(times), flush=True)


main()
