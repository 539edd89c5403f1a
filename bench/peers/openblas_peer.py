"""The peer "openblas": cblas_sgemm of the system's library, which takes its matrices as they are."""

import ctypes

import blas
from blas import DTYPES, LACKS, OPERATIONS  # noqa: F401
from c_calls import POINTER, first_library, function

LIBRARY = first_library("libopenblas.so.0")

VERSION = function(LIBRARY, "openblas_get_config", ctypes.c_char_p)().decode().split()[1]
TITLE = "OpenBLAS"
FAMILY = "OpenBLAS"
HOW = "cblas_sgemm"
INTERFACE = "C"


def prepare(request):
    LIBRARY.openblas_set_num_threads(request["threads"])
    return blas.prepare(request, blas.product("halyard_bench_gemm"), ctypes.cast(LIBRARY.cblas_sgemm, POINTER))
