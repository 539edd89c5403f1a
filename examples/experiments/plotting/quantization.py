"""Experiment 7: a trained language model in every format of GGUF."""

from .common import COLOURS, log_y, plt, positive, read


def divergence_figure(lines, weights):
    figure, axes = plt.subplots()
    families = {"floats": [], "blocks of 32": [], "k-quants": []}
    for line in lines:
        if line["divergence"] > 0:
            name = line["format"]
            families["k-quants" if "K" in name else "blocks of 32" if "_" in name else "floats"].append(line)
    for index, (label, some) in enumerate(families.items()):
        axes.errorbar([8 * line["matrix_bytes"] / weights for line in some], positive(line["divergence"] for line in some),
                      [line["divergence_error"] for line in some], fmt="os^"[index], color=COLOURS[index], label=label)
        for line in some:
            axes.annotate(line["format"], (8 * line["matrix_bytes"] / weights, line["divergence"]), fontsize=8,
                          xytext=(-6, -7) if label == "k-quants" else (6, 2), textcoords="offset points",
                          ha="right" if label == "k-quants" else "left")
    log_y(axes)
    axes.set_xscale("log")
    axes.set_xlim(2.8, 25)
    axes.set_xticks([4, 6, 8, 16], ["4", "6", "8", "16"])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("bits of a weight")
    axes.set_ylabel("KL divergence from f32, nats")
    axes.set_title("what quantizing costs")
    axes.legend()
    return figure


def table(lines, weights):
    return ("table", ["format", "bits of a weight", "perplexity", "loss above f32, 10⁻³ nats", "KL divergence, 10⁻³ nats",
                      "99 % of all below", "same most likely token, %"],
            [[line["format"], f"{8 * line['matrix_bytes'] / weights:.2f}", f"{line['perplexity']:.4f}",
              f"{1000 * line['loss_difference']:.3f} ± {1000 * line['loss_difference_error']:.3f}",
              f"{1000 * line['divergence']:.4f} ± {1000 * line['divergence_error']:.4f}",
              f"{1000 * line['divergence_99']:.4f}", f"{100 * line['agreement']:.2f} ± {100 * line['agreement_error']:.2f}"]
             for line in lines], 1)


def blocks(directory):
    every = read(directory, "quantization")
    lines, in_8_bits = ([line for line in every if line["activation_bits"] == bits] for bits in (32, 8))
    heading = ("heading", "7 · Quantizing a trained model", "quantization")
    if not lines:
        return [heading, ("text", "The run was interrupted before its first line.")]
    weights = lines[0]["matrix_bytes"] / 4  # the first format is F32
    return [
        heading,
        ("text", f"""
            A language model of GPT-2's form learnt the grammar of experiment 6, was written in each format by
            halyard-quantize's function, and predicts texts that it has not seen. Its perplexity in f32 is
            {lines[0]["reference_perplexity"]:.3f}. The KL divergence is that of its predictions from those in f32. A small
            model that has learnt for minutes says how formats rank, not what they cost a large one."""),
        ("figures", [("quantization_divergence", divergence_figure(lines, weights),
                      "Bars are standard errors. k-quants choose scales by a search, blocks of 32 by their largest value.")]),
        table(lines, weights),
        ("text", "With activations in 8 bits (HALYARD_PRODUCTS_INT8):"),
        table(in_8_bits, weights),
    ]
