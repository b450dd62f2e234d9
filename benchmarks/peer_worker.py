"""A peer in the rounds of an inference benchmark: peer_worker.py ENGINE MODELDIR --bs N --threads N [--executors N] [--cold].

ENGINE: onnxruntime, onnxruntime_int8, openvino, openvino_bf16, openvino_int8, paddle1, paddle1_mkldnn, paddle2,
paddle2_mkldnn. The protocol is that of inference_worker.py. Runs on Python 3.7 too, beside real Paddle.
"""

import argparse
import json
import os
import sys
import time
from functools import partial

from repeats import milliseconds


def lod_of(model, arrays, count):
    """The sequences of the LSTM's words: `count` of them."""
    rows = len(arrays["words"]) if "words" in arrays else 0
    return [list(range(0, rows + 1, rows // count))] if rows else None


def paddle1(mkldnn, options, arrays, names):
    from paddle.fluid.core import AnalysisConfig, create_paddle_predictor

    config = AnalysisConfig(
        os.path.join(options.model, "model.pdmodel"), os.path.join(options.model, "model.pdiparams")
    )
    config.disable_gpu()
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(options.threads)
    config.switch_ir_optim(True)
    config.enable_memory_optim()
    config.switch_use_feed_fetch_ops(False)
    config.switch_specify_input_names(True)
    if mkldnn:
        config.enable_mkldnn()
    predictor, lod = create_paddle_predictor(config), lod_of(options.model, arrays, options.bs)

    def run():
        for name in predictor.get_input_names():
            tensor = predictor.get_input_tensor(name)
            tensor.copy_from_cpu(arrays[name])
            if lod:
                tensor.set_lod(lod)
        predictor.zero_copy_run()
        return [predictor.get_output_tensor(name).copy_to_cpu() for name in predictor.get_output_names()]

    return run


def paddle2(mkldnn, options, arrays, names):
    import paddle.inference

    config = paddle.inference.Config(
        os.path.join(options.model, "model.pdmodel"), os.path.join(options.model, "model.pdiparams")
    )
    config.disable_gpu()
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(options.threads)
    config.switch_ir_optim(True)
    config.enable_memory_optim()
    if mkldnn:
        config.enable_mkldnn()
    else:
        config.disable_mkldnn()
    predictor, lod = paddle.inference.create_predictor(config), lod_of(options.model, arrays, options.bs)

    def run():
        for name in predictor.get_input_names():
            handle = predictor.get_input_handle(name)
            handle.reshape(arrays[name].shape)
            handle.copy_from_cpu(arrays[name])
            if lod:
                handle.set_lod(lod)
        predictor.run()
        return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]

    return run


def onnx_file(options, suffix=""):
    return os.path.join(options.model, "model_bs%d%s.onnx" % (options.bs, suffix))  # noqa: UP031 - Python 3.7 reads this file too


def onnxruntime(suffix, options, arrays, names):
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    session = onnxruntime.InferenceSession(onnx_file(options, suffix), settings, providers=["CPUExecutionProvider"])
    return [lambda: session.run(None, arrays)] * options.executors  # a session may be run by several threads


def openvino(precision, suffix, options, arrays, names):
    import openvino

    core = openvino.Core()
    model = core.read_model(onnx_file(options, suffix))
    settings = {"INFERENCE_NUM_THREADS": options.threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    settings["INFERENCE_PRECISION_HINT"] = precision
    if options.executors > 1:  # its own way: one model, a stream of its threads for each request
        settings.update(INFERENCE_NUM_THREADS=options.threads * options.executors, NUM_STREAMS=options.executors)
        settings["PERFORMANCE_HINT"] = "THROUGHPUT"
    compiled = core.compile_model(model, "CPU", settings)

    def of(request):
        def run():
            found = request.infer(arrays, share_inputs=True)
            return [found[output] for output in compiled.outputs]

        return run

    return [of(compiled.create_infer_request()) for _ in range(options.executors)]


def several(predictor, options, arrays, names):
    """Predictors of their own."""
    return [predictor(options, arrays, names) for _ in range(options.executors)]


ENGINES = {
    "onnxruntime": lambda *args: onnxruntime("", *args),
    "onnxruntime_int8": lambda *args: onnxruntime("_int8", *args),
    "openvino": lambda *args: openvino("f32", "", *args),
    "openvino_bf16": lambda *args: openvino("bf16", "", *args),
    "openvino_int8": lambda *args: openvino("f32", "_int8", *args),
    "paddle1": lambda *args: several(partial(paddle1, False), *args),
    "paddle1_mkldnn": lambda *args: several(partial(paddle1, True), *args),
    "paddle2": lambda *args: several(partial(paddle2, False), *args),
    "paddle2_mkldnn": lambda *args: several(partial(paddle2, True), *args),
}


def resident():
    """(resident now, at most so far) in MB; (0, 0) where the system does not say."""
    try:
        with open("/proc/self/status") as status:
            lines = dict(line.split(":", 1) for line in status)
    except OSError:
        return 0.0, 0.0
    return tuple(int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))


def main():
    start = time.perf_counter()
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("model")
    parser.add_argument("--bs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--executors", type=int, default=1)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    import numpy as np

    with np.load(os.path.join(options.model, "io.npz")) as stored:
        names = [name[3:] for name in stored.files if name.startswith("in_")]
        arrays = {name: np.concatenate([stored["in_" + name]] * options.bs) for name in names}
        wanted = [stored[name] for name in sorted(stored.files) if name.startswith("bs1_out_")]
    runs = ENGINES[options.engine](options, arrays, names)
    outputs = [np.asarray(value) for value in runs[0]()]
    if options.cold:
        print(json.dumps({"rss_peak_mb": resident()[1]}))
        return
    errors = [
        float(np.abs(a[: len(b)] - b).max() / np.abs(b).max())
        for a, b in zip(outputs, wanted)  # noqa: B905 - Python 3.7 reads this file too
        if a.shape[1:] == b.shape[1:]
    ]
    now, most = resident()
    fields = {"first_s": time.perf_counter() - start, "rel_err": errors, "rss_mb": now, "rss_peak_mb": most}
    print(json.dumps(fields), flush=True)
    for line in sys.stdin:
        print(json.dumps(milliseconds(runs, int(line))), flush=True)


main()
