#!/usr/bin/env python3
"""The types of the package, python/halyard/__init__.pyi, from the signatures and documentation of its functions.
usage: make_stubs.py [--check], with the built package in PYTHONPATH; --check only says whether the file is up to date."""
import inspect
import sys
from pathlib import Path

STUBS = Path(__file__).resolve().parents[1] / "halyard/__init__.pyi"
HEAD = '''"""Written by python/core/make_stubs.py."""
from typing import Any, Dict, Literal, Optional, Tuple, TypeVar

_Array = TypeVar("_Array")

__version__: str
'''
# Functions of other things than arrays: what they take and give.
OTHERS = {"set_num_threads": ({"number": "int"}, "None"), "get_num_threads": ({}, "int"), "info": ({}, "Dict[str, Any]")}


def type_of(parameter):
    if parameter.name == "layout":
        return 'Literal["gate_up", "up_gate", "interleaved"]'
    if parameter.name == "dtype":
        return "Any"
    if isinstance(parameter.default, (bool, float)):
        return type(parameter.default).__name__
    return "_Array" if parameter.default is inspect.Parameter.empty else "Optional[_Array]"


def stub_of(name, function):
    signature = inspect.signature(function)
    types, result = OTHERS.get(name, ({each.name: type_of(each) for each in signature.parameters.values()}, None))
    outputs = [each for each in signature.parameters.values() if each.kind == each.KEYWORD_ONLY and each.default is None]
    if result is None:
        result = "_Array" if len(outputs) == 1 else f"Tuple[{', '.join('_Array' for _ in outputs)}]"
    # Annotations are texts here, which formatting would put into quotes.
    parameters = [each.replace(annotation=_Name(types[each.name])) for each in signature.parameters.values()]
    text = signature.replace(parameters=parameters, return_annotation=_Name(result))
    return f'\n\ndef {name}{text}:\n    """{inspect.getdoc(function)}"""\n'


class _Name(str):
    __repr__ = str.__str__


def stubs():
    import halyard
    return HEAD + "".join(stub_of(name, getattr(halyard, name)) for name in halyard.__all__)


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
