"""The kernels of transformers, on arrays of NumPy and all that DLPack knows."""
from . import _core
from ._core import *  # noqa: F403
from ._core import __version__
from ._settings import max_isa, products



def __getattr__(name):
    absent = ": this package was built without the library of models" if name in ("Model", "TokenStream") else ""
    raise AttributeError(f"module 'halyard' has no attribute {name!r}{absent}")


__all__ = sorted([name for name in dir(_core) if not name.startswith("_")] + ["max_isa", "products"])
