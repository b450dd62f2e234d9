"""The environment variables that users set: for `fluidtool help environment` and the documents."""

from __future__ import annotations

VARIABLES: dict[str, dict[str, str]] = {
    "Output": {
        "NO_COLOR": "No color on a terminal.",
        "FORCE_COLOR": "Color also in a pipe.",
        "COLUMNS": "The width of tables, in characters.",
        "FLUIDTOOL_DEBUG": "1: show the traceback behind an error.",
    },
    "Computing": {
        "FLUIDTOOL_THREADS": "The number of threads of an engine (default: one per processor).",
        "CPU_NUM": "The number of CPU devices of data-parallel runs, as in Paddle; the number of threads if "
        "FLUIDTOOL_THREADS is not set.",
        "FLUIDTOOL_NATIVE": "0: do not use the native engine; otherwise the path of another library of it.",
        "FLUIDTOOL_INSTRUCTIONS": "The instruction set of the native engine, such as avx2, instead of the best one.",
        "FLUIDTOOL_INT8": "0: compute programs with fake quantization as floats, not in 8 bits.",
        "FLUIDTOOL_CACHE": "0: do not keep packed weights, starts of models, and choices of libraries on a GPU, in "
        "the user's cache folder.",
        "FLUIDTOOL_CUDA": "0: compute one operator at a time on a GPU, by cupy, instead of regions of programs and training steps "
        "as CUDA graphs.",
        "FLUIDTOOL_NCCL": "1: graphs also for programs of several GPUs, with sums by NCCL within the graph of a step or in buckets "
        "between graphs. Nobody has run that on real ones yet; without it, such programs run one operator at a time.",
        "FLUIDTOOL_CUDA_PRECISION": "tf32, bf16 or fp16: what those graphs round the factors of products to (sums stay float32). "
        "With the last two, graphs also keep in 16 bits what they compute, and weights of inference; parameters that are trained "
        "stay float32.",
        "FLUIDTOOL_VERIFY": "1: check the graph of a region after each rewrite; slow, for finding a fault.",
        "FLAGS_check_nan_inf": "1: a run of `fluidtool.fluid` stops at the first NaN or infinity.",
    },
    "Installing": {
        "CC": "The C compiler that builds the native engine; CFLAGS and LDFLAGS are its options.",
        "FLUIDTOOL_BUILD_INSTRUCTIONS": "The instruction sets to build: all, or names separated by commas "
        "(default: those that this processor runs best).",
    },
    "Old scripts": {
        "PADDLE_DATASET_HOME": "The folder of the data sets (default: ~/.cache/paddle/dataset).",
        "FLUIDTOOL_DATASET": "synthetic: make up data sets instead of reading them.",
    },
    "Roles of a job": {
        "PADDLE_TRAINING_ROLE": "TRAINER or PSERVER; `fluidtool launch` sets this variable and the next five.",
        "PADDLE_PSERVERS_IP_PORT_LIST": "The endpoints of the servers.",
        "PADDLE_TRAINERS_NUM": "The number of trainers.",
        "PADDLE_TRAINER_ID": "The number of this trainer, from 0.",
        "PADDLE_TRAINER_ENDPOINTS": "The endpoints of the trainers of a collective job.",
        "PADDLE_CURRENT_ENDPOINT": "The endpoint of this trainer.",
        "FLUIDTOOL_PROGRESS": 'A file to which a script appends lines such as {"step": 3}; `fluidtool launch` names it.',
        "FLUIDTOOL_STARTS": "How many times this role has been started, this time included; `fluidtool launch` sets it.",
        "FLUIDTOOL_METRICS": "The address at which a role shows its metrics, such as 127.0.0.1:9400.",
        "FLUIDTOOL_ELASTIC": "The least number of trainers of an elastic job; `launch --elastic` sets this and the next two.",
        "FLUIDTOOL_ELASTIC_TRAINERS": "The number of trainers that an elastic job is started with.",
        "FLUIDTOOL_ELASTIC_SERVERS": "The servers of an elastic job, for each of them; `fluidtool run` sets it.",
        "FLUIDTOOL_STRAGGLERS": "What happens to trainers that are late: report, drop, or one of them with :FACTOR.",
        "FLUIDTOOL_REPLICAS": "Of each server, where its second copy listens: HOST:PORT=HOST:PORT,…; `launch --replicas 2` sets "
        "this and the next three.",
        "FLUIDTOOL_REPLICA": "Which of the two copies of its server a role is: 0 or 1.",
        "FLUIDTOOL_REPLICAS_DIR": "The folder in which the copies of servers find out which of them serves.",
        "FLUIDTOOL_GENERATION": "How many times all roles of such a job have been started.",
        "FLUIDTOOL_COLLECTIVE": "How trainers of a collective job are connected: grpc, mpi, nccl or auto.",
        "FLUIDTOOL_COLLECTIVE_DEADLINE": "The number of seconds to wait for the other trainers in a collective.",
        "FLUIDTOOL_COLLECTIVE_OVERLAP": "1: sum gradients while the next ones are computed.",
        "FLUIDTOOL_COLLECTIVE_COMPRESSION": "fp16, bf16 or topk:SHARE: send fewer bytes of gradients.",
        "FLUIDTOOL_RPC": "stream: no sockets between fluidtool's own roles; compatible: Paddle's calls there, too.",
        "FLAGS_rpc_deadline": "The number of milliseconds that a call may take (180000).",
        "FLAGS_rpc_retry_times": "How many times a call is repeated when the connection breaks (3).",
        "FLAGS_worker_update_interval_secs": "Seconds after which a silent trainer ends the job (900).",
    },
    "Checkpoints of a job": {
        "FLUIDTOOL_CHECKPOINT_DIR": "Where a role saves checkpoints; `fluidtool launch` sets this and the next three.",
        "FLUIDTOOL_CHECKPOINT_EVERY": "The number of steps from one checkpoint to the next.",
        "FLUIDTOOL_CHECKPOINT_KEEP": "How many checkpoints are kept.",
        "FLUIDTOOL_RESUME_STEP": "The step from which a role resumes.",
        "FLUIDTOOL_RESTARTS": "How many times a role has been restarted, if Slurm or Kubernetes restarts it.",
    },
    "Security of a job": {
        "FLUIDTOOL_TOKEN": "The secret that all roles of a job share.",
        "FLUIDTOOL_TOKEN_FILE": "The file that contains it.",
        "FLUIDTOOL_TLS_CERTIFICATE": "The certificate of this role, a PEM file.",
        "FLUIDTOOL_TLS_KEY": "Its key.",
        "FLUIDTOOL_TLS_AUTHORITIES": "The authorities that sign the certificates of the other roles.",
        "FLUIDTOOL_TLS_PEER_NAME": "The name in the certificates of servers, if that is not their host.",
        "FLUIDTOOL_INSECURE": "1: listen on addresses other than loopback without a token or TLS.",
    },
}
# fluidtool sets these for the processes that it starts.
INTERNAL = frozenset({"FLUIDTOOL_CHILDREN", "FLUIDTOOL_HOME"})
