"""Calls of C functions, for peers whose library has a C interface: served.py times them in C."""

import ctypes

POINTER = ctypes.c_void_p


def function(library, name, result, *arguments):
    """A function of a library with its types."""
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


class CCall:
    """A call of a function with at most three pointers, which returns 0 if all went well; `kept` lives as long."""

    def __init__(self, called, *pointers, kept=None):
        self.function, self.kept = called, kept
        self.pointers = [getattr(pointer, "value", pointer) for pointer in pointers]

    def __call__(self):
        if self.function(*self.pointers):
            raise RuntimeError("its call failed")


class Repeat:
    """bench/peers/repeat.c on calls of one function."""

    def __init__(self, library, calls):
        self.repeat = function(ctypes.CDLL(library), "halyard_bench_repeat", ctypes.c_double, POINTER, POINTER,
                               ctypes.c_long, ctypes.c_long, ctypes.c_double, ctypes.c_long)
        self.address = ctypes.cast(calls[0].function, POINTER)
        self.sets = len(calls)
        flat = [pointer for call in calls for pointer in (call.pointers + [None, None])[:3]]
        self.arguments = (POINTER * len(flat))(*flat)

    def seconds(self, first, warm_up, count):
        return self.repeat(self.address, self.arguments, self.sets, first, warm_up, count)
