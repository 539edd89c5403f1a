"""python -m halyard info: prints what the library is and has."""
import sys

from . import info


def main(words):
    if words != ["info"]:
        print("usage: python -m halyard info", file=sys.stderr)
        return 2
    for name, value in info().items():
        print(f"{name:12} {' '.join(value) if isinstance(value, list) else value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
