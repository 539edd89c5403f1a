#!/usr/bin/env python3
"""Who may know whom: reads the includes of the library's sources and fails where an arrow runs the wrong way, where a source
lies outside the rooms, or where a room has grown too large. The rules are those of docs/rooms.md."""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]

# room: the rooms whose headers it may include besides its own.
MAY_INCLUDE = {
    "generators": {"schedules", "runtime/layout"},
    "schedules": {"runtime/layout"},
    "runtime/include": set(),
    "runtime/layout": set(),
    "runtime/core": {"runtime/include", "runtime/layout"},
    "runtime/api": {"runtime/include", "runtime/layout", "runtime/core"},
    "runtime/cpu": {"runtime/include", "runtime/layout", "runtime/core"},
    "runtime/cuda": {"runtime/include", "runtime/layout", "runtime/core"},
    "runtime/blocks": {"runtime/include", "runtime/layout", "runtime/core"},
    "models": {"runtime/include"},
    "operations": {"runtime/include"},
    "python": {"runtime/include", "models"},
}
MOST_FILES = 26  # of a folder in runtime/


def room_of(path):
    """The room of a file named from the root; None outside all."""
    return next((room for room in MAY_INCLUDE if path.startswith(room + "/")), None)


def target_of(including, name):
    """The file, named from the root, that `#include "name"` in `including` means; None if it is none of the project."""
    folders = [including.rsplit("/", 1)[0], "runtime", "runtime/include", "runtime/layout", "models/include", ""]
    for folder in folders:
        candidate = f"{folder}/{name}" if folder else name
        if (ROOT / candidate).is_file():
            return (ROOT / candidate).resolve().relative_to(ROOT).as_posix()
    return None


def faults():
    folders = {}
    for top in ("generators", "schedules", "runtime", "models", "operations", "python"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".h", ".hpp", ".cpp") or "tune" in path.parts:
                continue
            name = path.relative_to(ROOT).as_posix()
            folders.setdefault(path.parent, []).append(name)
            room = room_of(name)
            if room is None:
                yield f"{name} lies in no room"
                continue
            for included in re.findall(r'^#include [<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE):
                target = target_of(name, included)
                other = target and room_of(target)
                if other and other != room and other not in MAY_INCLUDE[room]:
                    yield f"{name} includes {target}, but {room}/ may not know {other}/"
    for room in MAY_INCLUDE:
        if not (ROOT / room).is_dir():
            yield f"{room}/ is no folder"
    for folder, files in folders.items():
        if len(files) > MOST_FILES and "runtime" in folder.parts:
            yield f"{folder.relative_to(ROOT)}/ has {len(files)} sources, more than {MOST_FILES}"


if __name__ == "__main__":
    found = list(faults())
    print("\n".join(found) or "every include goes where it may")
    sys.exit(bool(found))
