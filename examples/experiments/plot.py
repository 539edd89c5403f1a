#!/usr/bin/env python3
"""Makes pictures and one self-contained page of what the program `experiments` wrote.

    examples/experiments/plot.py DIRECTORY      reads DIRECTORY/*.csv, writes *.png and index.html beside them

Every number in the page is computed from the CSV files. Needs matplotlib.
"""

import argparse
import os
import sys

from plotting import ablation, activations, depth, ffn, norms, quantization, training
from plotting.common import read
from plotting.page import write_page

# The file that says whether an experiment was run, and the module that knows its files.
EXPERIMENTS = {"activation_norm": depth, "norm_speed": norms, "ffn_shapes": ffn, "activation_curves": activations,
               "training_gradients": training, "ablation": ablation, "quantization": quantization}


def main():
    parser = argparse.ArgumentParser(description="Makes pictures and a page of what the program experiments wrote.")
    parser.add_argument("directory", help="where the CSV files are, and where pictures and page go")
    directory = parser.parse_args().directory
    try:
        run = {line["what"]: line["value"] for line in read(directory, "run")}
        blocks = []
        for name, experiment in EXPERIMENTS.items():
            if os.path.exists(os.path.join(directory, name + ".csv")):
                blocks += experiment.blocks(directory)
    except (OSError, KeyError) as error:
        sys.exit(f"plot.py: cannot use the files in '{directory}': {error!r}")
    print(write_page(directory, run, blocks))


if __name__ == "__main__":
    main()
