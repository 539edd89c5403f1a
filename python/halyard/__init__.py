"""The kernels of transformers, on arrays of NumPy and all that DLPack knows."""
from . import _core
from ._core import *  # noqa: F403
from ._core import __version__

__all__ = [name for name in dir(_core) if not name.startswith("_")]
