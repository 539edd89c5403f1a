"""The peer "eigen": products that a C++ program makes which includes Eigen (eigen.cpp)."""

import ctypes

import blas
from blas import DTYPES, LACKS, OPERATIONS  # noqa: F401
from c_calls import POINTER, built, function

LIBRARY = built("halyard-bench-eigen")

VERSION = function(LIBRARY, "halyard_bench_eigen_version", ctypes.c_char_p)().decode()
TITLE = "Eigen"
FAMILY = "Eigen"
HOW = "compiled for this machine, on OpenMP"
INTERFACE = "C"


def prepare(request):
    LIBRARY.halyard_bench_eigen_threads(request["threads"])
    return blas.prepare(request, function(LIBRARY, "halyard_bench_eigen", None, POINTER, POINTER))
