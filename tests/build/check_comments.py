#!/usr/bin/env python3
"""Comments name files that exist: from the root, from their own folder, or by the end of a path. None begins with a word that only
the declaration before it explains: an editor shows a comment alone."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("bench", "cmake", "examples", "generators", "models", "operations", "programs", "python", "runtime", "schedules", "tests",
           "tools")
COMMENT = dict.fromkeys(("", ".cmake", ".py", ".pyi", ".txt"), r"#[^\n]*")
PATH = r"(?<![\w/.<{$])(?:[\w-]+/)*[\w-]+\.(?:h|hpp|cpp|inc|cmake|py)\b(?![\w(])"
# Files of other projects, and of the build.
ELSEWHERE = {"NAME_peer.py", "compressors/pack_quantized/helpers.py", 
             "cuda_occupancy.h", "dlpack/dlpack.h", "ggml-common.h", "halyard/config.h", "kernels/calls.inc",
             "kernels/device_calls.inc", "llama.cpp", "modules/linear/gemm.py", "pack_quantized/helpers.py",
             "src/ggml-common.h", "transformer.h", "xxhash.h"}
SUFFIXES = {".c", ".cmake", ".cpp", ".css", ".h", ".hpp", ".in", ".inc", ".js", ".py", ".pyi"}
# A comment or docstring that begins so: its mark, and the words.
OPENING = re.compile(r'(//[/!]?<?|/\*[*!]?<?|#|"""|\'\'\')[\s*]*(Of|The same|Those)\b')


def sources():
    yield from (ROOT / "CMakeLists.txt", ROOT / "kernels.cmake", ROOT / "operations.cmake", ROOT / "run")
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*")
                    if path.suffix in SUFFIXES or path.name == "CMakeLists.txt")


def goes_on(line, before, column):
    """Whether the comment at a column of a line goes on from the line before: not from a heading or an empty line."""
    return (re.match(r"//|#", line[column:]) and not line[:column].strip()
            and re.match(r"(//+|#+) *[^/# ]", before[column:]) and not before.endswith("----"))


def unclear_openings(text):
    """(number of the line, words) of each comment or docstring that begins with such words."""
    lines = text.split("\n")
    for found in OPENING.finditer(text):
        number, column = text.count("\n", 0, found.start()), found.start() - text.rfind("\n", 0, found.start()) - 1
        if number == 0 or not goes_on(lines[number], lines[number - 1], column):
            yield number + 1, found[2]


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
        wrong += [f"{path.relative_to(ROOT)}:{line}: a comment begins with '{words}': say what the thing is"
                  for line, words in unclear_openings(text)]
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
