#!/usr/bin/env python3
"""Turns the JSON of halyard-bench into report.md and a self-contained report.html.

bench/report.py RESULTS.json [--output DIRECTORY]
"""

import argparse
import os
import sys

from reporting import markdown, page
from reporting.run import DAMAGE, Damaged, load


def main():
    parser = argparse.ArgumentParser(description="Writes report.md and report.html from the JSON of halyard-bench.")
    parser.add_argument("results", help="the file that halyard-bench --json wrote")
    parser.add_argument("--output", default=".", help="directory of the report (default: this one)")
    arguments = parser.parse_args()
    try:
        run = load(arguments.results)
        texts = (("report.md", markdown.document(run)), ("report.html", page.page(run)))
    except Damaged as damaged:
        sys.exit(f"report.py: {damaged}")
    except DAMAGE as error:
        sys.exit(f"report.py: {arguments.results} is damaged: {type(error).__name__}: {error}")
    try:
        os.makedirs(arguments.output, exist_ok=True)
        for name, text in texts:
            with open(os.path.join(arguments.output, name), "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        sys.exit(f"report.py: {error.filename or arguments.output}: {error.strerror}")
    print(os.path.join(arguments.output, "report.html"))


if __name__ == "__main__":
    main()
