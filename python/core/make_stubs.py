#!/usr/bin/env python3
"""The types of the package, python/halyard/__init__.pyi, from the table of functions in the module, and what the module has beside.
usage: make_stubs.py [--check], with the built package in PYTHONPATH; --check only says whether the file is up to date."""
import inspect
import sys
from pathlib import Path

STUBS = Path(__file__).resolve().parents[1] / "halyard/__init__.pyi"
HEAD = '''"""Written by python/core/make_stubs.py."""
from __future__ import annotations

from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, TypeVar, Union

_Array = TypeVar("_Array")

__version__: str
'''
# What does not come from the table: signatures with types, and types of attributes.
OTHERS = {
    "set_num_threads": "(number: int, /) -> None",
    "get_num_threads": "() -> int",
    "info": "() -> Dict[str, Any]",
    **{f"{name}.{method}": signature for name in ("max_isa", "products")
       for method, signature in (("__init__", "(self, name: Optional[str]) -> None"), ("__enter__", "(self) -> None"),
                                 ("__exit__", "(self, *_: Any) -> None"))},
    "Weights.save": "(self, path: Any, /) -> None",
    "Weights.load": "(cls, path: Any, /) -> Weights",
    "Weights.to_bytes": "(self) -> bytes",
    "Weights.from_bytes": "(cls, data: Any, /) -> Weights",
    "Weights.dequantize": "(self) -> Any",
    "KVCache.length": "(self, layer: int = 0, sequence: int = 0) -> int",
    "KVCache.__len__": "(self) -> int",
    "Model.generate": "(self, ids: Sequence[int], max_tokens: int, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, "
                      "seed: int = 0, stop: Optional[Sequence[int]] = None) -> List[int]",
    "TokenStream.__iter__": "(self) -> TokenStream",
    "TokenStream.__next__": "(self) -> int",
}
ATTRIBUTES = {"dtype": "str", "gated": "bool", "norm_folded": "bool", "quantization": "Optional[Dict[str, Any]]",
              "config": "Dict[str, Any]", "matrix_formats": "Dict[str, int]"}  # others: int


def function(name, signature, documentation, indent=""):
    decorator = f"{indent}@classmethod\n" if signature.startswith("(cls") else ""
    return f'{decorator}{indent}def {name}{signature}:\n{indent}    """{documentation}"""\n'


def attribute(name, documentation):
    return f'    @property\n    def {name}(self) -> {ATTRIBUTES.get(name, "int")}:\n        """{documentation}"""\n'


def members(kind, name, table):
    """The stubs of a type, its constructor first."""
    if name in table:
        yield function("__init__", *table[name], "    ")
    for each in sorted({*vars(kind), *(each.partition(".")[2] for each in OTHERS if each.startswith(f"{name}."))}):
        signature, documentation = table.get(f"{name}.{each}", (None, inspect.getdoc(getattr(kind, each))))
        if inspect.isgetsetdescriptor(vars(kind).get(each)):
            yield attribute(each, documentation)
        elif signature is not None or f"{name}.{each}" in OTHERS:
            yield function(each, signature or OTHERS[f"{name}.{each}"], documentation, "    ")
        else:
            assert each.startswith("_"), f"{name}.{each} is neither in the table nor in OTHERS"


def stubs():
    import halyard
    table = {name: rest for name, *rest in halyard._core._stubs()}
    text = HEAD
    for name in halyard.__all__:
        value = getattr(halyard, name)
        if inspect.isclass(value):
            text += f"\n\nclass {name}:\n" + "\n".join(members(value, name, table))
        else:
            text += "\n\n" + function(name, *(table.get(name) or (OTHERS[name], inspect.getdoc(value))))
    return text


def main(words):
    text = stubs()
    if words == ["--check"]:
        is_current = STUBS.exists() and STUBS.read_text() == text
        print(f"{STUBS.name} is {'up to date' if is_current else 'not what python/core/make_stubs.py writes'}")
        return 0 if is_current else 1
    STUBS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
