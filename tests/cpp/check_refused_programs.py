#!/usr/bin/env python3
"""Compiles programs that the public headers refuse: the compiler's output has the sentence that says why, and little else.
usage: check_refused_programs.py COMPILER [OPTION OF THE COMPILER...]"""
import re
import subprocess
import sys

HEADERS = ("halyard", "attention", "block", "training", "model", "evaluate", "quantize")
NEEDS_CPP17 = "halyard.hpp needs C++17: compile with -std=c++17 or newer"
NO_DOUBLE = "halyard has kernels for float, halyard::f16 and halyard::bf16; a tensor of double is none of these"
PROGRAM = """#include <array>
#include <vector>
#include "halyard/halyard.hpp"
void call(std::vector<ELEMENT> &x, const std::array<ELEMENT, 4> &weight, ELEMENT *pointer, const ELEMENT (&array)[4], float *floats) {
LINES}
"""
CALLS = ("relu(x, output)", "relu({x, {2, 2}}, output)", "relu({x, {2, 2}, {2, 1}}, output)", "relu({pointer, 4}, output)",
         "relu({pointer, {2, 2}, {2, 1}}, output)", "relu(weight, output)", "relu(array, output)",
         "relu(std::vector<ELEMENT>(4), output)", "relu(output, x)", "relu(output, {x, {2, 2}})", "relu(output, {pointer, {2, 2}})",
         "relu(output, {pointer, {2, 2}, {2, 1}})")


def compiled(command, standard, program):
    done = subprocess.run([*command, f"-std={standard}", "-fsyntax-only", "-x", "c++", "-"], input=program, capture_output=True, text=True)
    return done.returncode, done.stderr


def check(condition, program, text):
    if not condition:
        sys.exit(f"check_refused_programs: {program}\n{text}")


def call_of(element, *calls):
    lines = "".join(f"    halyard::{call};\n" for call in calls)
    return PROGRAM.replace("LINES", lines).replace("ELEMENT", element).replace("output", "halyard::Tensor{floats, {2, 2}}")


def main(*command):
    for header in HEADERS:
        program = f'#include "halyard/{header}.hpp"\n'
        status, text = compiled(command, "c++14", program)
        check(status != 0 and NEEDS_CPP17 in text and len(re.findall("error: ", text)) == 2, program, text)
        status, text = compiled(command, "c++17", program)
        check(status == 0, program, text)
    program = call_of("float", *CALLS)
    status, text = compiled(command, "c++17", program)
    check(status == 0, program, text)
    for program in (*(call_of("double", call) for call in CALLS), call_of("long double", CALLS[0])):
        status, text = compiled(command, "c++17", program)
        check(status != 0 and NO_DOUBLE in text and len(re.findall("error: ", text)) == 1, program, text)
    print(f"check_refused_programs: {len(HEADERS)} headers and {len(CALLS)} calls")


main(*sys.argv[1:])
