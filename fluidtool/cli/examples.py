"""Examples at the end of each command's help; a test runs them all where `samples` is."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "fluidtool run samples/digits --feed samples/digits/x.npy",
        "fluidtool run samples/digits --random --batch 4 --fetch 'conv2d_*' -o out.npz",
        "fluidtool run samples/digits --feed samples/digits/x.npy \\",
        "    --expect samples/digits/expected.npz",
    ),
    "profile": (
        "fluidtool profile samples/digits --random --batch 8 --repeat 3",
        "fluidtool profile samples/digits --random --top 0 --trace trace.json",
    ),
    "inspect": (
        "fluidtool inspect samples/digits",
        "fluidtool inspect samples/digits --plan --batch 8",
        "cat samples/digits/__model__ | fluidtool inspect - --ops --json",
    ),
    "prune": ("fluidtool prune samples/digits --targets fc_0.tmp_0 -o features",),
    "reshape": (
        "fluidtool reshape samples/digits image:[8,1,8,8] -o digits_8",
        "fluidtool reshape samples/digits_v2 [16,1,8,8] --json",
    ),
    "quantize": (
        "fluidtool quantize samples/digits --data samples/digits/x.npy -o digits_8_bits",
        "fluidtool quantize samples/digits --data samples/digits/x.npy \\",
        "    --method kl --skip 'fc_*' --json",
    ),
    "convert": (
        "fluidtool convert samples/digits --to paddle2 -o digits",
        "fluidtool convert samples/digits --to npz -o weights.npz",
    ),
    "params": (
        "fluidtool params stats samples/digits",
        "fluidtool params merge samples/digits -o weights.safetensors",
        "fluidtool params rename samples/digits fc_0.w_0=weight -o renamed",
    ),
    "train": (
        "fluidtool train samples/digits_training --epochs 2 --save parameters \\",
        "    --data samples/digits_training/data.npz",
    ),
    "transpile": (
        "fluidtool transpile samples/digits --all-inference --verify -o digits_fused",
        "fluidtool transpile samples/digits --memory-optimize --measure",
    ),
    "launch": (
        "fluidtool launch --any-ports --mode collective --trainers 2 \\",
        "    samples/launch/role.py",
    ),
    "view": (
        "fluidtool view samples/digits -o digits.html",
        "fluidtool view samples/digits_v2 -o digits.svg --fold never",
    ),
    "compare": (
        "fluidtool compare samples/digits --engine-b native",
        "fluidtool compare samples/digits samples/digits --feed samples/digits/x.npy \\",
        "    --bisect -o part",
    ),
    "debug": (
        "fluidtool debug reduce samples/digits -o part -- \\",
        "    grep -q softmax {model}/__model__",
    ),
    "completion": ("fluidtool completion bash",),
    "help": ("fluidtool help FT210", "fluidtool help topics", "fluidtool help lod", "fluidtool help run"),
    "diff": ("fluidtool diff samples/digits samples/digits --with-params",),
    "check": (
        "fluidtool check samples/digits",
        "fluidtool check samples/digits samples/topics --format junit",
        "fluidtool check samples/topics --security --json",
    ),
    "exec": ("fluidtool exec samples/launch/role.py",),
    "ops": ("fluidtool ops 'sequence_*'", "fluidtool ops mul", "fluidtool ops --coverage samples/digits"),
    "version": ("fluidtool version --verbose",),
}
