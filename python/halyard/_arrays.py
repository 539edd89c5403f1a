"""New arrays of the kind of a given one, by the library that it comes from."""
import sys

_libraries = {}  # by type


def _library_of(kind):
    """The module of the first of its classes whose module makes arrays; None if there is none."""
    if kind not in _libraries:
        modules = (sys.modules.get(each.__module__.partition(".")[0]) for each in kind.__mro__)
        _libraries[kind] = next((each for each in modules if hasattr(each, "empty")), None)
    return _libraries[kind]


def make_array(like, dropped, last, function, dtype):
    """An uninitialized one of the shape of `like` without the last `dropped` axes, and with one of the extent `last` if that is not -1.
    dtype: None (that of `like`), one of the library's or its name."""
    library = _library_of(type(like))
    if library is None:
        raise TypeError(f"halyard.{function}: out is needed, as {type(like).__name__} says no way to make another")
    shape = tuple(like.shape)
    shape = shape[:len(shape) - dropped] + (() if last < 0 else (last,))
    if isinstance(dtype, str):
        dtype = getattr(library, dtype, dtype)
    placed = {"device": like.device} if hasattr(like, "new_empty") else {}  # torch's default may be another
    return library.empty(shape, dtype=like.dtype if dtype is None else dtype, **placed)


def make_matrix(rows, columns):
    """Uninitialized, in f32, by NumPy."""
    import numpy
    return numpy.empty((rows, columns), numpy.float32)
