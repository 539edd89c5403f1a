"""python -m halyard: `info` prints what the library is and has, `bench` times it beside NumPy."""
import sys

from . import info


def print_info():
    for name, value in info().items():
        print(f"{name:12} {' '.join(value) if isinstance(value, list) else value}")
    return 0


def main(words):
    if words == ["info"]:
        return print_info()
    if words == ["bench"]:
        from ._bench import bench
        return bench()
    print("usage: python -m halyard info|bench", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
