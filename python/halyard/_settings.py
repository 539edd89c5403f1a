"""Settings of calls within a with statement."""
from . import _core


class _Setting:
    """It holds for the whole process: calls of other threads have it too. The one that was there before returns at the end."""

    def __init__(self, name):
        """To be the subject of a with statement; it is checked there."""
        self._name = name

    def __enter__(self):
        """Sets it."""
        self._before = self._set(self._name)

    def __exit__(self, *_):
        """Sets what was there before."""
        self._set(self._before)


class max_isa(_Setting):
    """Caps the instruction set: a name of info()["isas"], or None for the best one that there is."""

    _set = staticmethod(_core._set_max_isa)


class products(_Setting):
    """How products are taken (halyard_context_set_products): "storage", "full", "bf16", "int8", or None for the library's default."""

    _set = staticmethod(_core._set_products)
