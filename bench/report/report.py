#!/usr/bin/env python3
"""Prints what a run of halyard-bench found, and makes a report of it: report.html, one page that needs nothing else, and
report.md.

    report.py RESULTS [--output DIRECTORY] [--text FILE]
"""

import argparse
import os
import sys

import page
import tables
from run import DAMAGE, Failure, load


def main():
    parser = argparse.ArgumentParser(description="Shows the results of halyard-bench.")
    parser.add_argument("results", help="the file that halyard-bench --json wrote")
    parser.add_argument("--output", help="directory of report.html and report.md")
    parser.add_argument("--text", help="a file for all tables as text")
    arguments = parser.parse_args()
    texts = {}
    try:
        run = load(arguments.results)
        parts = tables.document(run)
        if arguments.output:
            texts[os.path.join(arguments.output, "report.md")] = tables.as_markdown(parts)
            texts[os.path.join(arguments.output, "report.html")] = page.page(run)
        if arguments.text:
            texts[arguments.text] = tables.as_text(parts)
        summary = tables.as_text(tables.summary(run))
    except Failure as failure:
        sys.exit(f"report.py: {failure}")
    except DAMAGE as error:
        sys.exit(f"report.py: {arguments.results} is damaged: {type(error).__name__}: {error}")
    try:
        if arguments.output:
            os.makedirs(arguments.output, exist_ok=True)
        for name, text in texts.items():
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        sys.exit(f"report.py: {error.filename or arguments.output}: {error.strerror}")
    print(summary, end="")


if __name__ == "__main__":
    main()
