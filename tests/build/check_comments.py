#!/usr/bin/env python3
"""Comments name files that exist: from the root, from their own folder, or by the end of a path."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("bench", "cmake", "examples", "generators", "models", "operations", "programs", "python", "runtime", "schedules", "tests",
           "tools")
COMMENT = {".py": r"#[^\n]*", ".cmake": r"#[^\n]*", ".txt": r"#[^\n]*"}
PATH = r"(?<![\w/.<{$])(?:[\w-]+/)*[\w-]+\.(?:h|hpp|cpp|inc|cmake|py)\b(?![\w(])"
# Files of other projects, and of the build.
ELSEWHERE = {"NAME_peer.py", "compressors/pack_quantized/helpers.py", 
             "cuda_occupancy.h", "dlpack/dlpack.h", "ggml-common.h", "halyard/config.h", "kernels/calls.inc",
             "kernels/device_calls.inc", "llama.cpp", "modules/linear/gemm.py", "pack_quantized/helpers.py",
             "src/ggml-common.h", "transformer.h", "xxhash.h"}


def sources():
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*")
                    if path.suffix in (".h", ".hpp", ".cpp", ".c", ".cmake", ".py") or path.name == "CMakeLists.txt")


def main():
    names = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*")}
    names |= {path.name for path in ROOT.iterdir()}
    ends = {name[i:] for name in names for i in [0, *(m.end() for m in re.finditer("/", name))]}
    wrong = []
    for path in sources():
        text = path.read_text()
        for comment in re.findall(COMMENT.get(path.suffix, r"//[^\n]*|/\*.*?\*/"), text, re.DOTALL if path.suffix not in COMMENT else 0):
            for name in re.findall(PATH, comment):
                if name not in ends and name not in ELSEWHERE:
                    wrong.append(f"{path.relative_to(ROOT)}: there is no {name}")
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
