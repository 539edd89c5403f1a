// Python's Limited API of 3.9, for one module that all later versions load, and what its headers leave out although every
// CPython since exports it: the buffer protocol, which they declare from 3.11 on, and arguments in an array, from 3.10 on.
#ifndef HALYARD_PYTHON_CORE_PYTHON_API_H
#define HALYARD_PYTHON_CORE_PYTHON_API_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

/** Python's Py_buffer, whose fields have not changed since 3.0 and are part of the stable ABI. */
struct BufferView {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
};

extern "C" {
PyAPI_FUNC(int) PyObject_CheckBuffer(PyObject *object);
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, BufferView *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(BufferView *view);
}

/** Python's PyBUF_STRIDES | PyBUF_FORMAT: any layout without suboffsets, read-only or not. */
inline constexpr int strides_and_format = 0x0010 | 0x0008 | 0x0004;

#endif
