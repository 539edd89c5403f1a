"""Calls of C functions, for peers whose library has a C interface: served.py times them in C (c_calls.c)."""

import ctypes
import glob
import os
import sys

POINTER = ctypes.c_void_p


def function(library, name, result, *arguments):
    """A function of a library with its types."""
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


def built(name):
    """A library that was built with the benchmark."""
    return ctypes.CDLL(os.path.join(sys.argv[2], f"lib{name}.so"))


def first_library(*patterns):
    """The first file of these that there is, or else what the system finds by the last name."""
    files = [file for each in patterns for file in sorted(glob.glob(each))]
    return ctypes.CDLL(files[0] if files else os.path.basename(patterns[-1]))


def address(each):
    return ctypes.addressof(each) if isinstance(each, ctypes.Array) else getattr(each, "value", each)


class CCall:
    """Calls of functions, each given as (function, argument...) with at most four pointers or whole numbers, that return 0 or
    nothing if all went well; `kept` lives as long."""

    def __init__(self, *steps, kept=None):
        self.steps = [(called, *map(address, arguments)) for called, *arguments in steps]
        self.kept = steps, kept

    def __call__(self):
        for called, *arguments in self.steps:
            if called(*arguments):
                raise RuntimeError("its call failed")


class Step(ctypes.Structure):
    _fields_ = [("function", POINTER), ("arguments", POINTER * 4)]


class Repeat:
    """Times calls that have as many steps as each other."""

    def __init__(self, calls):
        self.repeat = function(built("halyard-bench-c-calls"), "halyard_bench_repeat", ctypes.c_double, POINTER,
                               *[ctypes.c_long] * 3, ctypes.c_double, ctypes.c_long)
        steps = [Step(ctypes.cast(called, POINTER), (POINTER * 4)(*arguments))
                 for call in calls for called, *arguments in call.steps]
        self.steps, self.each, self.sets = (Step * len(steps))(*steps), len(calls[0].steps), len(calls)

    def seconds(self, first, warm_up, count):
        return self.repeat(self.steps, self.each, self.sets, first, warm_up, count)
