#!/usr/bin/env python3
"""The code in README.md and docs/ is compiled and run as it stands there, against the installed package, and links and
names of files lead somewhere. CONTRIBUTING.md says what becomes of which block, and how a block says that it is not run.
usage: check_snippets.py --build BUILD [--cmake PROGRAM] [PAGE...]"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"model": ROOT / "tests/data/models/llama3_f32", "encoder": ROOT / "tests/data/models/bert_f32"}
FRAGMENT = ROOT / "tests/build/snippet.h"
NOT_RUN = object()  # in the place of what a block printed
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# The part of Mermaid that pages use.
NODE = r'\w{2,}(\["[^"]+"\]|\(\["[^"]+"\]\)|\[\("[^"]+"\)\]|\{"[^"]+"\})?'
EDGE = rf'    {NODE}( (-->|-- "[^"]+" -->) {NODE})+'
PROJECT = "cmake_minimum_required(VERSION 3.16)\nproject(snippet LANGUAGES C CXX)\nadd_executable(program main.cpp)\n"


class Wrong(Exception):
    pass


class Block:
    def __init__(self, info, line, text):
        self.language, _, self.directive = info.partition(" ")
        self.line, self.text = line, text


def link_models(folder):
    for name, model in MODELS.items():
        (folder / name).symlink_to(model)


def blocks_of(text):
    blocks, inside = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if inside is None and line.startswith("```"):
            inside = Block(line[3:].strip(), number, "")
        elif inside is not None and line == "```":
            blocks.append(inside)
            inside = None
        elif inside is not None:
            inside.text += line + "\n"
    if inside is not None:
        raise Wrong(f"the block that begins in line {inside.line} does not end")
    return blocks


def prose_of(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", prose_of(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(page):
    folders = "generators|schedules|runtime|models|programs|python|tests|bench|examples|cmake|tools|docs"
    for name in re.findall(rf"`((?:{folders})/[\w./-]*)[`\s]", prose_of(page.read_text())):
        if not (ROOT / name).exists():
            raise Wrong(f"it names {name}, which is not there")
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path) if path else page
        if not other.exists():
            raise Wrong(f"a link leads to {target}, which is not there")
        if anchor and anchor not in anchors_of(other):
            raise Wrong(f"a link leads to {target}, but {other.name} has no such heading")


class Tester:
    def __init__(self, build, cmake, scratch):
        self.cmake, self.scratch, self.dist, self.helps = cmake, scratch, scratch / "dist", {}
        self.run([cmake, "--install", build, "--prefix", self.dist])
        self.library = next(self.dist.rglob("libhalyard.a")).parent
        self.environment = {key: value for key, value in os.environ.items()
                            if key not in ("CMAKE_PREFIX_PATH", "CMAKE_GENERATOR", "DESTDIR", "LD_LIBRARY_PATH")
                            and not key.startswith("HALYARD_")}
        if Path(cmake).is_absolute():
            self.environment["PATH"] = f"{Path(cmake).parent}:{os.environ['PATH']}"
        self.environment["PKG_CONFIG_PATH"] = str(self.library / "pkgconfig")
        self.environment["PYTHONPATH"] = str(build / "python")
        self.fragment = Path(shutil.copy(FRAGMENT, scratch))
        self.run([os.environ.get("CXX", "c++"), "-std=c++17", *WARNINGS, "-x", "c++-header", self.fragment, *self.flags("--cflags"), "-o",
                  f"{self.fragment}.gch"])  # where GCC looks for it, compiled once for all fragments
        self.has_package = self.imports("numpy", "halyard")

    def run(self, command, folder=None, environment=None):
        done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True,
                              timeout=280)
        if done.returncode != 0:
            raise Wrong(f"exit status {done.returncode} of {' '.join(str(word) for word in command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def imports(self, *modules):
        return subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], env=self.environment, capture_output=True).returncode == 0

    def flags(self, *words):
        return self.run(["pkg-config", *words, "halyard"], environment=self.environment).split()

    def program(self, source, folder):
        """Compiled and linked statically, with the models; run with the folder of a model."""
        models = [self.library / "libhalyard_models.a"] if source.suffix == ".cpp" else []
        compiler = [os.environ.get("CXX", "c++"), "-std=c++17"] if models else [os.environ.get("CC", "cc"), "-std=c11"]
        self.run([*compiler, *WARNINGS, source, *self.flags("--cflags"), *models, *self.flags("--variable=archive"), "-lm", "-pthread",
                  "-o", folder / "program"], folder)
        return self.run([folder / "program", "model"], folder, self.environment)

    def project(self, text, folder):
        project = Path(tempfile.mkdtemp(dir=folder))
        for source in folder.glob("main.*"):
            shutil.copy(source, project)
        if not (project / "main.cpp").exists():
            raise Wrong("the page has no program for this project")
        link_models(project)
        for each in (project, folder):
            (each / "CMakeLists.txt").write_text(text if "project(" in text else PROJECT + text)
        self.run([self.cmake, "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.dist}"], project, self.environment)
        self.run([self.cmake, "--build", project / "build"], project, self.environment)
        return self.run([project / "build/program", "model"], project, self.environment)

    def check_run(self, line):
        """The words and options of ./run are those that it knows; what they do has other tests."""
        word, *arguments = re.sub(r"\s+#.*", "", line).split()[1:]
        if word not in self.helps:
            self.helps[word] = self.run([ROOT / "run", word, *(["--help"] if word != "help" else [])])
        for option in (argument.partition("=")[0] for argument in arguments if argument.startswith("--")):
            if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", self.helps[word]):
                raise Wrong(f"./run {word} has no {option}")

    def shell(self, text, folder):
        lines = text.replace("\\\n", " ").splitlines()
        for line in lines:
            if line.startswith("./run "):
                self.check_run(line)
        rest = "\n".join(line for line in lines if not line.startswith("./run "))
        return self.run(["bash", "-euo", "pipefail", "-c", rest], folder, self.environment)

    def block(self, block, folder):
        """What it was counted as, and what it printed: None where nothing ran."""
        text = block.text
        if block.directive.startswith("file "):
            (folder / block.directive[5:]).write_text(text)
            return "files", None
        if block.directive not in ("", "output"):
            raise Wrong(f"'{block.directive}' is no directive")
        if block.language in ("c", "cpp"):
            source = folder / f"main.{block.language}"
            if "int main" in text:
                source.write_text(text)
                return "programs", self.program(source, folder)
            if block.language == "c":
                raise Wrong("a fragment in C cannot be run")
            source = folder / "fragment.cpp"
            source.write_text(f'#include "{self.fragment}"\n\nint main() {{\n{text}}}\n')
            return "fragments", self.program(source, folder)
        if block.language == "cmake":
            return "projects", self.project(text, folder)
        if block.language == "sh":
            return "shell blocks", self.shell(text, folder)
        if block.language == "json":
            json.loads(text)
            return "JSON blocks, read", None
        if block.language == "python" and "import halyard" in text and not self.has_package:
            return "Python blocks not run, for want of NumPy or the module", NOT_RUN
        if block.language == "python":
            return "Python blocks", self.run([sys.executable, "-c", text], folder, self.environment)
        if block.language == "mermaid":
            kind, *edges = text.splitlines()
            for line in edges if re.fullmatch("flowchart (TD|LR)", kind) else [kind]:
                if not re.fullmatch(EDGE, line):
                    raise Wrong(f"this is no line of a flowchart that the test knows: {line}")
            return "diagrams", None
        if block.language == "text":
            return "text", None
        raise Wrong(f"'{block.language}' is no language that this test knows")

    def page(self, page, counts):
        check_links(page)
        folder = self.scratch / re.sub(r"\W", "_", str(page.relative_to(ROOT)))
        folder.mkdir()
        (folder / "dist").symlink_to(self.dist)
        link_models(folder)
        (folder / "main.cpp").write_text(next(block.text for block in blocks_of((ROOT / "README.md").read_text())
                                              if block.language == "cpp" and "int main" in block.text))
        printed = None
        for block in blocks_of(page.read_text()):
            try:
                if block.directive.startswith("not run: "):
                    print(f"{page.relative_to(ROOT)}:{block.line}: {block.language}, {block.directive}")
                    counts["not run"] += 1
                elif block.directive == "output":
                    if printed not in (block.text, NOT_RUN):
                        raise Wrong(f"the block before it printed\n{printed}")
                    counts["outputs"] += 1
                else:
                    kind, printed = self.block(block, folder)
                    counts[kind] += 1
            except (Wrong, json.JSONDecodeError, SyntaxError, subprocess.TimeoutExpired) as wrong:
                raise Wrong(f"line {block.line}: {wrong}") from wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages] or sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    counts, failed = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as scratch:
        tester = Tester(arguments.build.resolve(), arguments.cmake, Path(scratch))
        for page in pages:
            try:
                tester.page(page, counts)
            except Wrong as wrong:
                failed += 1
                print(f"{page.relative_to(ROOT)}: {wrong}", file=sys.stderr)
    print(f"{len(pages)} pages: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
