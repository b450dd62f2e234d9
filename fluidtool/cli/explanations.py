"""What each code of an error or of a finding means, and the way out: for `fluidtool help errors` and the documents."""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """The meaning of a code, and what to do."""

    meaning: str
    remedy: str


ERRORS = {
    "FT000": Explanation(
        "A fault in fluidtool itself.",
        "Report it, with the output of `FLUIDTOOL_DEBUG=1` and, if possible, the model.",
    ),
    "FT200": Explanation(
        "An invalid argument: an unknown name, a shape that does not match, an option that contradicts another.",
        "The message names the argument and what was expected; `fluidtool COMMAND --help` lists the options.",
    ),
    "FT201": Explanation(
        "An invalid argument of the Python API, where Paddle's code asserts.",
        "The message names the argument and what was expected.",
    ),
    "FT202": Explanation(
        "A use of something that was closed.",
        "Make a new one.",
    ),
    "FT203": Explanation(
        "The host of an endpoint has no address.",
        "Correct the endpoint, or make its name known on this machine (`getent hosts NAME`).",
    ),
    "FT210": Explanation(
        "A feed with a wrong name, rank, data type or LoD, or an input that is not fed.",
        "`fluidtool inspect MODEL` lists the inputs; convert the array (`array.astype('float32')`), give "
        "sequence lengths with `--lod`, or try the model with `--random`.",
    ),
    "FT211": Explanation(
        "A variable is fetched that the program does not compute.",
        "`fluidtool inspect --vars MODEL` lists the variables; fetch a variable of block 0.",
    ),
    "FT212": Explanation(
        "A fetched value has a LoD, which an array cannot hold.",
        "Fetch it with `return_numpy=False`: a LoDTensor, whose `recursive_sequence_lengths()` divide its rows.",
    ),
    "FT220": Explanation(
        "The program cannot do what is asked: a variable that does not exist, a block out of range, a target "
        "that depends on inputs that are not given.",
        "`fluidtool inspect --vars --ops MODEL` shows what the program has.",
    ),
    "FT221": Explanation(
        "The program has no block with this number.",
        "`fluidtool inspect --ops MODEL` shows what the program has.",
    ),
    "FT230": Explanation(
        "A Python argument of a type that the API does not accept.",
        "The message names the types that are accepted.",
    ),
    "FT231": Explanation(
        "A Python argument of a wrong type, where some of Paddle's code raises a TypeError and some a ValueError.",
        "The message names the types that are accepted.",
    ),
    "FT232": Explanation(
        "A layer of a script got an argument that it cannot compute with: None for a number, text for a list.",
        "The message shows all arguments that the layer got; `help` of the layer says what each must be.",
    ),
    "FT240": Explanation(
        "Level-of-detail offsets or lengths that do not fit the tensor.",
        "The lengths of each level must add up to the number of entries of the next, those of the last to the"
        " first dimension.",
    ),
    "FT241": Explanation(
        "Level-of-detail lengths that do not fit the tensor, where Paddle's code asserts.",
        "As for FT240.",
    ),
    "FT250": Explanation(
        "The program names a file or an address that it may not use.",
        "If you trust the model, allow it: `--allow-files DIR`, `--allow-network`; `fluidtool check "
        "--security MODEL` lists what it could do.",
    ),
    "FT260": Explanation(
        "Writing would replace something that exists.",
        "Choose another name, or replace it with `--force`.",
    ),
    "FT261": Explanation(
        "The output cannot be written: no space, no permission, not a folder.",
        "Nothing was changed. Make room or choose another place.",
    ),
    "FT300": Explanation(
        "An input file is missing, truncated, damaged, or not of the expected kind.",
        "The message says what was found; `fluidtool inspect` names the kind of a file.",
    ),
    "FT301": Explanation(
        "Nothing at the path looks like a model, or more than one thing does.",
        "Name the folder, the program file or the prefix of `.pdmodel`; with several programs in a folder, "
        "choose one with `--model-file`.",
    ),
    "FT302": Explanation(
        "A file of a data set is not where it is expected.",
        "Put it there, or set the folder of the data sets as the message describes.",
    ),
    "FT310": Explanation(
        "A parameter is missing, has a shape or data type that the program does not declare, or is followed by "
        "stray bytes.",
        "Name the right file with `--params`, or save the model again; `fluidtool check MODEL` lists all such"
        " parameters.",
    ),
    "FT311": Explanation(
        "As FT310, where Paddle's code asserts.",
        "As for FT310.",
    ),
    "FT320": Explanation(
        "A pickle contains something other than data. It was not loaded, and nothing in it was run.",
        "Save the values with numpy or Paddle again; do not load the file with `pickle` unless you trust it.",
    ),
    "FT400": Explanation(
        "An operator, or a feature of one, that fluidtool does not support.",
        "`fluidtool ops --coverage MODEL` lists all of them in a model; `fluidtool prune` can cut the model before it.",
    ),
    "FT410": Explanation(
        "A name of Paddle that fluidtool does not offer.",
        "The message says what to use instead, where there is something.",
    ),
    "FT411": Explanation(
        "An import of a name of Paddle that fluidtool does not offer.",
        "The message says what to use instead, where there is something.",
    ),
    "FT420": Explanation(
        "A format cannot express the model.",
        "The table lists each operator with the reason; `fluidtool prune` can cut the model before it.",
    ),
    "FT430": Explanation(
        "Operators contain sizes that contradict the new input shapes.",
        "`fluidtool reshape --fix-baked-batch` repairs those that follow the batch size; the others are "
        "listed with their places.",
    ),
    "FT500": Explanation(
        "NaN or infinity where finite numbers are required.",
        "`fluidtool run --check-nan` shows the first operator that makes one, with its inputs; `fluidtool "
        "check` looks for NaN in the parameters.",
    ),
    "FT600": Explanation(
        "An operator got inputs that it cannot take.",
        "The message names the operator and the shapes; usually a feed has a different shape from "
        "what the model was trained with.",
    ),
    "FT601": Explanation(
        "An operator reads a variable that was never written: neither fed, nor loaded, nor computed.",
        "Feed it, run the startup program first, or load its parameters.",
    ),
    "FT602": Explanation(
        "A reader's queue is closed and empty: the end of an epoch.",
        "Scripts catch it as `fluid.core.EOFException` and reset the reader.",
    ),
    "FT603": Explanation(
        "Every thread of a program is waiting for another one at a channel.",
        "The message says who waits for what; close a channel, or give it a buffer.",
    ),
    "FT700": Explanation(
        "The requested device does not exist on this machine.",
        "`fluidtool version --verbose` lists the devices.",
    ),
    "FT701": Explanation(
        "A script asks for places of GPUs on a machine that has none.",
        "`fluidtool exec --device cpu` uses the CPU in their place.",
    ),
    "FT710": Explanation(
        "The request does not fit into the memory of this machine.",
        "Use a smaller batch, fetch less, or free memory; `fluidtool inspect --plan MODEL` shows what a run needs.",
    ),
    "FT720": Explanation(
        "A package that is needed is missing or too old.",
        "The message has the `pip install` line.",
    ),
    "FT800": Explanation(
        "A peer refused a message or did not answer.",
        "Look at the log of the peer that the message names.",
    ),
    "FT801": Explanation(
        "The parameter server keeps no variable of that name.",
        "Trainers and servers must come from the same transpilation: make the job again.",
    ),
    "FT802": Explanation(
        "The parameter server does not take a message: a wrong shape, data type, step or trainer.",
        "Trainers and servers must come from the same transpilation and the same checkpoint.",
    ),
    "FT803": Explanation(
        "The job cannot continue: a peer ended, or the server is stopping.",
        "`fluidtool launch` restarts the job from its last common checkpoint; by hand, start all roles again.",
    ),
    "FT804": Explanation(
        "A deadline passed while waiting for the others.",
        "Look for the slow or dead peer; the environment variable `FLAGS_rpc_deadline` is the deadline in ms.",
    ),
    "FT805": Explanation(
        "A round of an elastic job goes on without this trainer.",
        "Trainers that `fluidtool run` and `launch` start join again by themselves.",
    ),
    "FT806": Explanation(
        "Of two copies of a server another one serves, since this one was not heard of.",
        "Nothing: what trainers sent is there. `fluidtool launch` starts this copy again, as the backup.",
    ),
    "FT807": Explanation(
        "Both copies of a server were lost before one of them was replaced.",
        "Restart the job from its last checkpoint; `fluidtool launch --checkpoint DIR --restarts N` does so by itself.",
    ),
    "FT810": Explanation(
        "Processes that compute together disagree on what to do, or one of them has ended.",
        "All of them must run the same program with inputs of the same shapes.",
    ),
}

# of `fluidtool check`
FINDINGS = {
    "FC101": Explanation(
        "An operator reads a variable before it is written, and it is neither fed nor a parameter. Checked "
        "only in programs with feed operators: in others, any variable that is read first may be fed.",
        "Feed it, or prune the program again with all its inputs.",
    ),
    "FC102": Explanation(
        "An operator names a variable that no block around it declares.",
        "The program was edited by hand or pruned wrongly; save it again.",
    ),
    "FC103": Explanation(
        "An operator computes a value that is never read, fetched or kept.",
        "`fluidtool prune` drops it.",
    ),
    "FC104": Explanation(
        "The columns of feed or fetch operators are not 0, 1, 2 …, each once.",
        "Save the model again.",
    ),
    "FC201": Explanation(
        "The shapes of an operator's inputs are incompatible.",
        "The message says which; the operator would fail at run time.",
    ),
    "FC202": Explanation(
        "An operator gives its output a shape that contradicts the declaration. Declared sizes of 0 do not count (Paddle "
        "declares them for what it cannot infer), nor does a reshape, which `reshape` with `inplace=True` leaves behind when "
        "it is pruned.",
        "The message says which; the operator would fail at run time.",
    ),
    "FC203": Explanation(
        "An operator passes on the data type of its input, but its output is declared with a different one. "
        "Declared float32 does not count: it is what Paddle declares by default.",
        "The message says which; the operator would fail at run time.",
    ),
    "FC301": Explanation(
        "A parameter is missing. One that a startup program makes is not.",
        "Name its file with `--params`, or save the model again.",
    ),
    "FC302": Explanation(
        "A parameter's shape is not the one that the program declares.",
        "The file belongs to another program.",
    ),
    "FC303": Explanation(
        "A parameter's data type is not the one that the program declares.",
        "The file belongs to another program.",
    ),
    "FC304": Explanation(
        "A parameter file cannot be read: truncated, corrupted, trailing bytes, or several candidate files.",
        "The message says which.",
    ),
    "FC305": Explanation(
        "A parameter contains NaN.",
        "Take the parameters from before the training failed.",
    ),
    "FC306": Explanation(
        "A parameter contains infinities. Masks are not reported: their finite elements are all equal, and so"
        " are the infinite ones.",
        "Take the parameters from before the training failed.",
    ),
    "FC307": Explanation(
        "All elements of a weight are equal: a matrix or filter that an operator multiplies by, or a table "
        "whose rows it looks up.",
        "It was never trained or loaded: take the parameters from after the training.",
    ),
    "FC308": Explanation(
        "Output channels of a weight are zero throughout: filters of a convolution, columns of a matrix (a matrix without "
        "negative numbers is a mask, and is not reported).",
        "Remove them, or accept the finding in a baseline if the model was made sparse.",
    ),
    "FC309": Explanation(
        "A parameter that no operator uses. Checked only in programs with fetch operators.",
        "`fluidtool prune` drops it.",
    ),
    "FC401": Explanation(
        "An operator that fluidtool does not support.",
        "`fluidtool ops` lists the supported ones.",
    ),
    "FC402": Explanation(
        "An operator lacks an attribute that has no default.",
        "Save the model again.",
    ),
    "FC403": Explanation(
        "An operator names no variable for a required input.",
        "Save the model again.",
    ),
    "FC404": Explanation(
        "An attribute of an operator has a type that its schema does not declare. Paddle's own conversions are "
        "not reported: integers for booleans and floats.",
        "Save the model again; it would not run.",
    ),
    "FC405": Explanation(
        "An operator names several variables where its schema allows one.",
        "Save the model again; it would not run.",
    ),
    "FC406": Explanation(
        "An operator names no variable for its first output, which is required.",
        "Save the model again; it would not run.",
    ),
    "FC501": Explanation(
        "An operator reads or writes a file.",
        "Check where the model comes from. To allow it, name the folder: `--allow-files DIR`.",
    ),
    "FC502": Explanation(
        "An operator connects to other processes or listens for them.",
        "Programs of a distributed job do; allow it with `--allow-network`.",
    ),
    "FC503": Explanation(
        "An operator calls a Python function of the process that runs it. A file names it by number only, and"
        " fluidtool calls only those that the process itself has registered.",
        "Do not distribute such a program as a model.",
    ),
    "FC504": Explanation(
        "A `while` loop never ends once it has started: its body does not change the condition.",
        "Save the model again; a run of it must be stopped by hand.",
    ),
}
