"""Short pages on what several commands share: for `fluidtool help TOPIC`, completion and the documents.

A page fits a terminal of 80 columns and 24 lines and names the document that says more. Written without any library, since
`fluidtool help` lists them.
"""

from __future__ import annotations

from typing import NamedTuple

from fluidtool.cli.exit_codes import EXIT_CODES


class Topic(NamedTuple):
    """One topic: its line in the list, the document it summarizes, and its text."""

    summary: str
    page: str
    text: str


TOPICS = {
    "formats": Topic(
        "What you can name as a model, and which files it has.",
        "docs/formats.md",
        """\
MODEL is one of:
  a folder                  __model__, and one file per parameter or one
                            combined file (fluid.io.save_inference_model)
  a prefix, or either file  NAME.pdmodel with NAME.pdiparams or NAME.pdparams
  a program file            __model__, main.pb, main_program, any file name
  -                         a program on standard input

--model-file NAME chooses among several programs in a folder. --params names the
parameters if they are elsewhere: a combined file, a folder with one file per
parameter, .pdparams, .npz, .safetensors, or a folder of checkpoints (the latest
complete one is used).

'fluidtool convert MODEL -o OUT --to FORMAT' writes paddle1, paddle2, separate,
combined, pdparams, npz, safetensors or onnx. ONNX is written, not read.
'fluidtool inspect MODEL' says what a folder or file is.""",
    ),
    "feeds": Topic(
        "How inputs get their values.",
        "docs/formats.md",
        """\
--feed x.npy             the only input, or the one named like the file (x)
--feed image=x.npy       the input image
--feed inputs.npz        all arrays of the file, by name
--feed image=-           .npy or .npz on standard input
--random [--seed N]      made-up values for the inputs that are not fed
--batch N                the size of a leading -1 of random inputs (default: 1)
--shape image=1,3,32,32  the whole shape of a random input
--lod words=[[2,3]]      sequence lengths ('fluidtool help lod')

'fluidtool inspect MODEL' lists the inputs with data types and shapes; -1 is a
size known only at run time. An array must have the declared data type: convert
it with array.astype('float32').

In Python, feeds are arrays, LoDTensors, numbers or lists:
model.run({"image": array}).""",
    ),
    "lod": Topic(
        "How sequences of different lengths are fed.",
        "docs/explanation/programs.md",
        """\
Fluid keeps the rows of all sequences one after another in one tensor, without
padding. The LoD (level of detail) says where each sequence begins.

Two sentences of 2 and 3 words are 5 rows:
  fluidtool run MODEL --feed words.npy --lod words=[[2,3]]

Two paragraphs, of 2 sentences and 1, have two levels; the lengths of each level
add up to the number of entries of the next, those of the last to the rows:
  --lod words=[[2,1],[3,2,4]]

For several inputs, --lod FILE.json holds the lengths by name:
  {"words": [[2, 3]]}
A .npz file can hold them itself, as JSON text under NAME.lod.

In Python: fluid.create_lod_tensor(array, [[2, 3]], fluid.CPUPlace()). Its
method lod() returns offsets, [[0, 2, 5]]; options and files take lengths.""",
    ),
    "names": Topic(
        "Names of variables, and patterns of names.",
        "docs/how-to.md",
        """\
Variables, operators and models can be named by patterns: * stands for any
characters, ? for one, [ab] for one of these. Quote patterns for the shell.

  fluidtool run MODEL --random --fetch 'conv2d_*'   values inside the model
  fluidtool ops 'sequence_*'                        operators by type
  fluidtool check 'models/*'                        several models

A pattern of --fetch matches what the program computes in block 0, in the order
of computation. --fetch-all fetches everything.

'fluidtool inspect MODEL --vars' lists the variables, '--ops' the operators. A
misspelled name gets an error with the closest one. Completion offers variables
after --fetch and --targets ('fluidtool completion bash').""",
    ),
    "engines": Topic(
        "What computes: native, numpy, ONNX Runtime, OpenVINO, cupy.",
        "docs/native.md",
        """\
--engine auto         native if it was built, otherwise numpy (the default)
--engine native       compiled kernels; operators without one run in numpy
--engine numpy        one operator at a time, the reference for all others
--engine onnxruntime  pip install 'fluidtool[onnxruntime]'
--engine openvino     pip install 'fluidtool[openvino]'
--device gpu          the engine cuda: regions as CUDA graphs, the rest by cupy;
                      with FLUIDTOOL_CUDA=0 cupy alone, one operator at a time
--threads N           threads of the engine, by default one per processor

The native engine is built at installation if there is a C compiler; 'fluidtool
version --verbose' says whether it is in use, and why not.

  fluidtool inspect MODEL --plan        what would compute which operator
  fluidtool profile MODEL --random      what takes the time
  fluidtool compare MODEL --engine-b native     whether it agrees with numpy

'fluidtool launch --engine' is something else: it says what starts the roles.""",
    ),
    "precision": Topic(
        "float32, 16-bit and 8-bit numbers.",
        "docs/native.md",
        """\
--precision float32  the default
--precision bf16     weights of products and convolutions are rounded to
                     bfloat16; on processors with AVX512-BF16 their inputs, too.
                     Sums and everything else stay float32. Needs the native
                     engine.

Models with fake quantization ('fluidtool quantize' makes them) compute in
8 bits in the native engine; FLUIDTOOL_INT8=0 emulates that in float32, as
numpy does.

Engines add in different orders, so results differ in the last bits. Tolerances:
  run --expect          rtol 1e-4, atol 1e-5     (--rtol, --atol)
  compare               rtol 1e-4, atol that times the largest element
  transpile --verify    1e-5, or no difference if every pass is exact (--rtol)
For bf16, try 'fluidtool compare MODEL --precision-b bf16 --rtol 0.02'.

In Python: fluidtool.load(path, precision="bf16").""",
    ),
    "security": Topic(
        "What a model may do, and how to allow more.",
        "SECURITY.md",
        """\
A model is untrusted data. Opening one runs nothing in it, and pickled
parameters are read without Python's unpickler.

A program that runs may touch no file and no network, unless you allow it:
  --allow-files DIR  operators may save and load files below DIR (repeatable)
  --allow-network    operators may connect and listen
These are refused with the code FT250.

  fluidtool check --security MODEL   what a program could do: files, network,
                                     Python functions, endless loops, memory

A model may still use as much time and memory as it likes: run one that you do
not trust under limits of the operating system. Scripts are trusted:
'fluidtool exec SCRIPT' runs Python code.

Roles of a job on several machines need a token or TLS ('fluidtool help roles').""",
    ),
    "exit-codes": Topic(
        "What the exit code of a command says.",
        "docs/commands/index.md",
        "\n".join(f"{code:<5}{meaning}" for code, meaning in EXIT_CODES)
        + """

The code belongs to the error that ends the command: 'fluidtool help FT210' says
what the code in brackets means and what to do. check of several models reads
all of them first: 1 if any has a finding, 3 if one cannot be read at all.

launch has codes of its own: 128 + N after signal N of a role, 124 for a job
that hangs, 143 after SIGTERM. exec ends with the exit code of the script.""",
    ),
    "json": Topic(
        "JSON documents for other programs.",
        "docs/schemas/README.md",
        """\
--json writes one JSON document to stdout instead of tables; train and launch
write one line per step or event. Progress and errors stay on stderr.

Each document has a key "schema", such as "fluidtool.run/1". Within /1 no key is
removed or changes its meaning. Keys may be added: ignore what you do not know.

NaN and infinities are the strings "NaN", "Infinity" and "-Infinity". A value
that does not exist is null. Sizes are in bytes, times in seconds.

If a command fails, the document is "fluidtool.error/1", with the code, the
message, a hint, the exit code and the location.

'check --format junit', 'sarif' and 'github' write reports for CI systems.""",
    ),
    "roles": Topic(
        "Distributed jobs: how programs of roles are made and run.",
        "docs/distribute.md",
        """\
1. Make the programs of every role, for parameter servers (or, with
   --mode collective, for trainers that sum gradients among themselves):
     fluidtool transpile main.pb --startup startup.pb --distribute \\
       --pservers 127.0.0.1:6174 --trainers 2 -o job     (--plan: only show it)

2. Start and supervise all of them:
     fluidtool launch --any-ports job --data data.npz --batch-size 32
   Options before the job are for launch, those after it for the trainers.
     --restarts N      restart from the newest common checkpoint
     --checkpoint DIR --checkpoint-every N     where, and how often, to save
     --engine ray|mpi  start the roles elsewhere; --role NAME starts one alone

A script instead of the folder runs in every role; environment variables tell it
its role ('fluidtool help environment').

On addresses other than loopback a role needs a token (FLUIDTOOL_TOKEN_FILE) or
TLS; jobs made for several machines come with certificates.""",
    ),
}

LISTS = {
    "errors": "The codes of errors and findings, with what to do.",
    "environment": "The environment variables.",
    "topics": "This list.",
}


def topic_page(name: str) -> str:
    """What `fluidtool help NAME` shows of a topic."""
    topic = TOPICS[name]
    return f"{topic.summary}\n\n{topic.text}\n\nMore: {topic.page}\n"
