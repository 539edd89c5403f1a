"""An array that nothing but DLPack can read: numbers of bf16, or of another type, in memory of NumPy."""
import ctypes

import numpy as np

BFLOAT, FLOAT = 4, 2
CPU, CUDA = 1, 2


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def to_bf16(numbers):
    """Their bits, rounded to nearest even."""
    bits = np.asarray(numbers, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class DlpackArray:
    """An array of the bits of bf16 if not told otherwise. version: None for a capsule without one."""

    def __init__(self, memory, code=BFLOAT, version=None, flags=0, device=CPU):
        self.memory, self.version, self.exports, self.kept = memory, version, 0, []
        self.shape, self.dtype = memory.shape, "bfloat16"
        self.layout = (code, flags, device)

    def numbers(self):
        return (self.memory.astype(np.uint32) << 16).view(np.float32)

    def _tensor(self):
        code, _, device = self.layout
        rank, item = self.memory.ndim, self.memory.itemsize
        shape = (ctypes.c_int64 * rank)(*self.memory.shape)
        strides = (ctypes.c_int64 * rank)(*(each // item for each in self.memory.strides))
        self.kept = [shape, strides]
        return _Tensor(self.memory.ctypes.data, device, 0, rank, code, 8 * item, 1, ctypes.addressof(shape), ctypes.addressof(strides), 0)

    def _capsule(self, managed, name):
        self.exports += 1
        self.kept.append(managed)
        return _new_capsule(ctypes.addressof(managed), name, None)

    def __dlpack__(self, **options):
        if self.version is None and options:
            raise TypeError("max_version is not known")
        if self.version is None:
            return self._capsule(_Managed(self._tensor(), None, None), b"dltensor")
        return self._capsule(_Versioned(*self.version, None, None, self.layout[1], self._tensor()), b"dltensor_versioned")
