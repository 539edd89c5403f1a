"""The peer "mkl": cblas_sgemm_compute on weights that cblas_sgemm_pack packed beforehand, as ours are."""

import ctypes
import re
import sys

import blas
import numpy as np
from blas import DTYPES, OPERATIONS  # noqa: F401
from c_calls import POINTER, first_library, function

ctypes.CDLL("libgomp.so.1", ctypes.RTLD_GLOBAL)  # the threading layer finds its functions there
LIBRARY = first_library(sys.prefix + "/lib/libmkl_rt.so.*", "libmkl_rt.so.2")
GNU_THREADS = 3
LIBRARY.MKL_Set_Threading_Layer(GNU_THREADS)
text = ctypes.create_string_buffer(200)
LIBRARY.MKL_Get_Version_String(text, len(text) - 1)

VERSION = re.search(r"[\d.]+", text.value.decode()).group()
TITLE = "MKL"
FAMILY = "MKL"
HOW = "cblas_sgemm_compute on weights packed beforehand"
INTERFACE = "C"
LACKS = blas.LACKS + "; slower on AMD than on Intel"
CAPS_ISA = True

INT, FLOAT = ctypes.c_int, ctypes.c_float
ROW_MAJOR, TRANSPOSE, B_MATRIX = 101, 112, 162
pack = function(LIBRARY, "cblas_sgemm_pack", None, *[INT] * 6, FLOAT, POINTER, INT, POINTER)
packed_bytes = function(LIBRARY, "cblas_sgemm_pack_get_size", ctypes.c_size_t, *[INT] * 4)


def prepare(request):
    LIBRARY.MKL_Set_Num_Threads(request["threads"])

    def packed(matrix):
        rows, (out, d) = request["rows"], matrix.shape
        weights = blas.aligned(np.zeros(packed_bytes(B_MATRIX, rows, out, d), np.uint8))
        pack(ROW_MAJOR, B_MATRIX, TRANSPOSE, rows, out, d, 1.0, matrix.ctypes.data, d, weights.ctypes.data)
        return weights

    return blas.prepare(request, blas.product("halyard_bench_gemm_packed"),
                        ctypes.cast(LIBRARY.cblas_sgemm_compute, POINTER), weights_of=packed)
