"""What options of ./run may name, read from where the repository lists it, so that a wrong name costs no download and no build."""
import ast
import difflib
import os
import re
import warnings
from pathlib import Path

from prepare import MACHINE, ROOT

PEERS = ROOT / "bench/peers"
# A feature in /proc/cpuinfo without which a machine cannot run the instruction set. The programs look closer.
FEATURES = {"sse41": "sse4_1", "avx2": "avx2", "avx512": "avx512vl", "avx512_bf16": "avx512_bf16", "amx": "amx_tile", "neon": "asimd",
            "neon_fp16": "asimdhp", "neon_bf16": "bf16", "neon_bfdot": "bf16", "neon_bfmmla": "bf16"}


def nearest(wrong, known):
    return "".join(f"; did you mean {each}?" for each in difflib.get_close_matches(wrong, known, 1))


def refusal(given, known):
    return f"'{given}' is none of {', '.join(known)}{nearest(given, known)}"


# ---- the lists ----

def lists_of_target(name):
    """A list of cmake/HalyardTarget.cmake: for every processor, x86-64 before arm64, or for all."""
    text = (ROOT / "cmake/HalyardTarget.cmake").read_text()
    return [each.split() for each in re.findall(rf"(?m)^ *set\({name} (.*)\)$", text)]


def isas(target):
    return lists_of_target("HALYARD_ALL_ISAS")[(target or MACHINE) == "arm64"]


def isas_here():
    """What this machine may be able to run."""
    here = set(Path("/proc/cpuinfo").read_text().split())
    return [each for each in isas(None) if FEATURES[each] in here]


def operations():
    """Groups and operations of operations.cmake."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "operations.cmake").read_text())
    for loop, names, body in re.findall(r"(?ms)^(foreach\(name IN ITEMS ([^)]*)\)(.*?)^endforeach\(\))", text):
        text = text.replace(loop, "".join(body.replace("${name}", name) for name in names.split()))
    return [*dict.fromkeys(re.findall(r" GROUP +(\w+)", text)), *re.findall(r"(?m)^ *halyard_operation\( *(\w+)", text)]


def work_lists():
    return sorted(each.stem for each in (ROOT / "bench/shapes").glob("*.txt"))


def peers(more=None):
    """The benchmark's peers, and those of the folder of --more-peers."""
    files = [each for folder in filter(None, (PEERS, more)) for each in Path(folder).glob("?*_peer.py")]
    return sorted({each.name[:-len("_peer.py")] for each in files})


def how_to_get_peers():
    """What bench/peers/install does for each."""
    return ast.get_docstring(ast.parse((PEERS / "install").read_text())).partition("between them.\n\n")[2]


# ---- the checks ----

def regular_expression(given):
    """Whether it can be one. Letters after a backslash are the business of the program that matches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        re.compile(re.sub(r"\\.", "x", given))


def names_of(word, options):
    """What the options of a word that take names may name, by option."""
    if MACHINE is None:  # no kernels are for it, as prepare() says
        return {}
    if word in ("build", "test"):
        return {"isa": ["all", *isas(options.target)], "dtypes": ["all", *lists_of_target("HALYARD_ALL_DTYPES")[0]],
                "operations": ["all", *operations()]}
    if word == "tune":
        return {"isa": ["all", *isas_here()], "dtype": ["all", *lists_of_target("HALYARD_ALL_DTYPES")[0]]}
    if word == "bench":
        is_file = options.shapes and os.path.isfile(options.shapes)
        return {"isa": isas_here(), "peers": ["all", "none", *peers(options.more_peers)], **({} if is_file else {"shapes": work_lists()})}
    return {}


def check(word, options, wrong_usage):
    """Refuses a name of what is not there, with what there is, and a regular expression that is none."""
    for option, known in names_of(word, options).items():
        for given in filter(None, (getattr(options, option) or "").split(",")):
            if given not in known:
                wrong_usage(f"argument --{option}: {refusal(given, known)}")
    for option in ("filter", "label"):
        try:
            regular_expression(getattr(options, option, None) or "")
        except re.error as error:
            wrong_usage(f"argument --{option}: '{getattr(options, option)}' is no regular expression: {error}")
