"""Reads the results of halyard-bench, and says what a report wants to know of them.

The first line of a file is the machine, the versions and the limits; then comes a line for each row, and last what is
known at the end alone. A file without the last line is of a run that was killed."""

import json
import math
import statistics
from collections import Counter
from functools import cached_property
from typing import NamedTuple

SCHEMA = 3
OWN, COMPILED = "halyard", "pytorch-compile"

LEAST_LIBRARIES = 2  # independent of each other, for a row to count
SMALL = 2e-6  # seconds: below that a loop of Python around a peer's call is much of its time
ABNORMAL = 5  # times the greatest ratio of the peer's like rows
NOISY, HIDDEN = 0.1, 0.5  # noise beyond which a run, or what it says of a family, is doubtful
F32_INSTRUCTION, INT8_INSTRUCTION = "f32 FMA", "8-bit integers"
# Whose limit of multiply-adds is that of another instruction than f32's; it is for products of bf16 alone.
BF16_INSTRUCTIONS = {"avx512_bf16": "bf16 dot product", "amx": "AMX tiles of bf16", "neon_bfdot": "BFDOT of bf16",
                     "neon_bfmmla": "BFMMLA of bf16"}
NOT_FOR_THIS_MACHINE = "not for this machine"  # how the reason begins why a peer is missing that cannot be here

# What a file that is not as it should be gives where it is read.
DAMAGE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


class Failure(Exception):
    """A sentence for the user."""


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def read_lines(path):
    """The first line with what the last one adds, and the rows."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    texts = text.splitlines()
    if texts and not text.endswith("\n"):
        texts.pop()  # the run was killed while it wrote it
    head, *rows = [json.loads(each, parse_constant=no_constant) for each in texts] or [None]
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        raise Failure(f"{path} is no result of halyard-bench of this version (schema {SCHEMA})")
    end = {"interrupted": True, "busy_elsewhere": 0.0}
    if rows and isinstance(rows[-1], dict) and "interrupted" in rows[-1]:
        end = rows.pop()
    return {**head, **end}, rows


def load(path):
    try:
        head, rows = read_lines(path)
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Failure(f"{path} is damaged: {error}") from None
    for index, row in enumerate(rows):
        try:
            Row(row, {}).check()
        except DAMAGE as error:
            name = row.get("name", "without a name") if isinstance(row, dict) else "no object"
            raise Failure(f"{path}: row {index} ({name}) is damaged: {type(error).__name__}: {error}") from None
    try:
        return Run(head, rows)
    except DAMAGE as error:
        raise Failure(f"{path} is damaged: {type(error).__name__}: {error}") from None


def positive(estimate):
    value = float(estimate["median"])
    if not 0 < value < math.inf or isinstance(estimate["median"], str):
        raise ValueError(f"a median of {estimate['median']!r}")
    return value


class Peer(NamedTuple):
    """What a run says of a peer."""

    name: str
    title: str
    library: str  # peers of one library are one opponent
    interface: str  # "C": timed in a loop of C; "Python": in one whose cost is that of a small row
    version: str
    missing: str  # why it was not there, or empty
    how: str
    lacks: str


def peer_of(data):
    def text(key, otherwise=""):
        return data.get(key) or otherwise

    return Peer(data["name"], text("title", data["name"]), text("family", data["name"]), text("interface", "Python"),
                text("version"), data["missing"], text("how"), text("lacks"))


def rate_unit(int8):
    return "Gop/s" if int8 else "GFLOP/s"


class Row:
    """A row of the run, with the peers that took part in it."""

    def __init__(self, data, peers):
        self.data, self.peers = data, peers
        self.abnormal = {}  # {peer: the greatest ratio of rows like it}, see Run.find_abnormal

    def __getitem__(self, key):
        return self.data[key]

    def get(self, key, otherwise=None):
        return self.data.get(key, otherwise)

    def check(self):
        """Touches what the report needs."""
        for key in ("name", "kernel", "group", "dtype", "state", "isa", "failure", "is_wrong", "peers"):
            self[key]
        int(self["rows"]), int(self["d"]), int(self["threads"]), int(self["rounds"])
        if self.is_measured:
            for key in ("seconds", "fraction_of_limit", "ours_over_ours_again"):
                positive(self[key]), float(self[key]["mad"])
            float(self["noise"]), float(self["bytes"])
        for name, result in self["peers"].items():
            if "ratio" in result:
                positive(result["ratio"]), float(result["noise"])
                if result["verdict"] not in ("ahead", "tie", "behind"):
                    raise ValueError(f"the verdict on {name}")

    @property
    def is_measured(self):
        return self["rounds"] > 0

    @property
    def seconds(self):
        return self["seconds"]["median"]

    @property
    def spread(self):
        return self["seconds"]["mad"] / self.seconds

    @property
    def fraction(self):
        return self["fraction_of_limit"]["median"]

    @property
    def is_beyond_limit(self):
        """Whether it took less time than its limit by more than the noise, in every measurement."""
        return self.get("is_beyond_limit", False)

    @property
    def fraction_text(self):
        return f"{self.fraction:.0%}" + ("†" if self.is_beyond_limit else "")

    @property
    def has_roofline(self):
        """Whether it has matrix products, and its limit is the longer of reading and multiplying."""
        return "weight_bytes" in self.data

    @property
    def has_int8_products(self):
        """Whether it rounds what it multiplies with quantized matrices to 8 bits."""
        return self.get("int8_products", False)

    @property
    def has_bf16_products(self):
        return self.has_roofline and self["dtype"] == "bf16"

    @property
    def bound_by(self):
        if not self.has_roofline:
            return "copy"
        return "reading" if self["read_seconds"]["median"] >= self["multiply_add_seconds"]["median"] else "arithmetic"

    @property
    def operations(self):
        """Floating-point operations of one call; None where nobody counted."""
        return self.get("flops")

    @property
    def shape(self):
        return self["name"].split("/")[2]

    @property
    def bytes_per_second(self):
        return self["bytes"] / self.seconds

    @property
    def rate_text(self):
        if self.get("family", "").split(".")[0] in ("block", "model"):
            return f"{significant(self['rows'] / self.seconds)} tokens/s"
        if self.has_roofline:
            return f"{significant(self['flops'] / self.seconds / 1e9)} {rate_unit(self.has_int8_products)}"
        return f"{significant(self.bytes_per_second / 1e9)} GB/s"

    def peer(self, name):
        return self["peers"].get(name, {})

    def ratio(self, name):
        """Time of the peer over ours; None if there is none that counts."""
        ratio = self.peer(name).get("ratio")
        return ratio["median"] if ratio else None

    def libraries(self):
        """The libraries that opponents are of, each once."""
        return list(dict.fromkeys(self.peers[name].library for name in self.opponents))

    # ---- against other libraries ----

    def fair_ratio(self, name):
        """The peer's ratio where it can be believed and counts, else None."""
        return None if self.is_small or name in self.abnormal else self.ratio(name)

    @cached_property
    def opponents(self):
        """Peers that have a time that can be believed."""
        return [name for name in self["peers"] if name in self.peers and self.ratio(name) and name not in self.abnormal]

    @cached_property
    def fastest(self):
        """(name, ratio, verdict) of the opponent that takes least time; None without one."""
        name = min(self.opponents, key=self.ratio, default=None)
        return None if name is None else (name, self.ratio(name), self.peer(name)["verdict"])

    @cached_property
    def is_small(self):
        """Whether it is so short that peers called from Python lose by that alone."""
        return self.seconds < SMALL and any(self.peers[name].interface != "C" for name in self.opponents)

    @cached_property
    def counts(self):
        """Whether a lead in it is one over enough independent libraries."""
        return not self.is_small and len(self.libraries()) >= LEAST_LIBRARIES


class Run:
    def __init__(self, data, rows):
        self.data = data
        # Other ways to call this library, which runs had that are older, are no peers.
        self.about = {each["name"]: peer_of(each) for each in data["peers"] if each.get("family") != OWN}
        self.peers = [name for name, each in self.about.items() if not each.missing]
        self.missing = [(name, each.missing) for name, each in self.about.items() if each.missing]
        self.every_row = [Row(row, self.about) for row in rows]
        self.rows = [row for row in self.every_row if row.is_measured]
        if not isinstance(data["machine"], dict):
            raise ValueError("it does not say on which machine it was measured")
        self.threads, self.machine, self.limits = int(data["threads"]), data["machine"], data["limits"]
        self.library = data["library"]
        self.find_abnormal()

    def peers_of(self, rows):
        """Peers with a time, or a wrong result, in one of the rows."""
        return [name for name in self.peers if any(row.ratio(name) or row.peer(name).get("is_wrong") for row in rows)]

    def groups(self):
        """{group: rows}, in the run's order."""
        groups = {}
        for row in self.rows:
            groups.setdefault(row["group"], []).append(row)
        return groups

    def compared_groups(self):
        """As groups(), with small rows apart."""
        groups = {group: [row for row in rows if not row.is_small] for group, rows in self.groups().items()}
        groups["under 2 µs, not counted"] = [row for row in self.rows if row.is_small]
        return {group: rows for group, rows in groups.items() if rows}

    def worst(self, rows, most):
        """At most so many of the rows: those where the fastest peer, or else the limit, is furthest ahead; in their
        order."""
        if len(rows) <= most:
            return rows

        def rank(index):
            fastest = rows[index].fastest
            return (0, fastest[1]) if fastest else (1, rows[index].fraction)

        chosen = set(sorted(range(len(rows)), key=rank)[:most])
        return [row for index, row in enumerate(rows) if index in chosen]

    # ---- counting ----

    def tally(self):
        """The headline: rows against the fastest of at least two other libraries, and what is left out of it."""
        with_peer = [row for row in self.rows if row.fastest]
        counted = [row for row in with_peer if row.counts]
        few = [row for row in with_peer if not row.counts and not row.is_small]
        return {
            **counts_of(row.fastest[2] for row in counted), "mean": geometric_mean([row.fastest[1] for row in counted]),
            "few": len(few), "few_behind": sum(row.fastest[2] == "behind" for row in few),
            "small": sum(row.is_small for row in with_peer),
            "without_compile": sum(row.ratio(COMPILED) is None for row in counted)}

    def verdict_text(self):
        """The headline in a sentence."""
        tally = self.tally()
        if not tally["rows"]:
            return "No row was measured against two other libraries."
        return f"{counted_text(tally)}; the fastest takes {ratio_text(tally['mean'])} its time in geometric mean."

    def tally_text(self):
        """The headline in sentences, with what is left out; empty without rows against other libraries."""
        tally = self.tally()
        if not tally["rows"] + tally["few"] + tally["small"]:
            return ""
        text = (
            f"{counted_text(tally)}; the median noise of the ratios is {self.noise():.1%}. Not counted: {tally['few']} "
            "rows with one other library")
        if tally["few_behind"]:
            text += f" ({tally['few_behind']} of them behind it)"
        text += f", and {tally['small']} under 2 µs whose peers are called from Python."
        if tally["without_compile"]:
            text += f" torch.compile did not take part in {tally['without_compile']} of the {tally['rows']}."
        return text

    def noise(self):
        """Median noise of the ratios with other libraries."""
        return statistics.median([row.peer(name)["noise"] for row in self.rows for name in row.opponents] or [0.0])

    def tally_of(self, name):
        """Rows, ahead, tied, behind, wrong and geometric mean of a peer; of small and abnormal rows there are none."""
        rows = [row for row in self.rows if row.fair_ratio(name)]
        return {
            **counts_of(row.peer(name)["verdict"] for row in rows), "mean": self.mean(name, rows),
            "wrong": sum(1 for row in self.rows if row.peer(name).get("is_wrong"))}

    @staticmethod
    def mean(name, rows):
        """Geometric mean of a peer's times over ours; None without any."""
        return geometric_mean([row.fair_ratio(name) for row in rows if row.fair_ratio(name)])

    def behind(self):
        """(ratio, row, peer) where a peer is faster, the worst first."""
        found = [(row.ratio(name), row, name) for row in self.rows for name in self.peers
                 if row.peer(name).get("verdict") == "behind"]
        return sorted(found, key=lambda each: each[0])

    # ---- what makes it doubtful ----

    @property
    def is_disturbed(self):
        """Whether others used so much of the processors that rows on all threads may be wrong."""
        return self.data["busy_elsewhere"] > 0.05

    def wrong(self):
        """(row, peer) whose result missed the tolerance."""
        return [(row, name) for row in self.rows for name in self.peers if row.peer(name).get("is_wrong")]

    def stopped(self):
        """(row, peer, reason) of peers that crashed, hung or failed, as against rows they do not have."""
        return [(row, name, row.peer(name)["reason"]) for row in self.rows for name in self.peers
                if row.peer(name).get("reason", "").startswith(("its process", "gave no answer"))]

    def find_abnormal(self):
        """Marks ratios far beyond those of the peer's other rows of the same kernel; beyond all its other rows where
        the kernel has one alone."""
        for name in self.peers:
            of_kernel, of_all = {}, [0.0, 0.0]  # the two greatest ratios
            rows = [row for row in self.rows if row.ratio(name) and row.seconds >= SMALL]
            for row in rows:
                for greatest in (of_kernel.setdefault(row["kernel"], [0.0, 0.0]), of_all):
                    greatest[:] = sorted([*greatest, row.ratio(name)])[1:]
            for row in rows:
                ratio, like = row.ratio(name), of_kernel[row["kernel"]]
                second, first = like if like[0] else of_all
                other = second if ratio == first else first
                if other and ratio > ABNORMAL * max(other, 1):
                    row.abnormal[name] = other

    def abnormal(self):
        """{peer: sentences}"""
        found = {}
        for row in self.rows:
            for name, greatest in row.abnormal.items():
                found.setdefault(name, []).append(
                    f"{name} is abnormal in {row['name']}: {ratio_text(row.ratio(name))} of our time, and "
                    f"{ratio_text(greatest)} at most in rows like it")
        return found

    def objections(self, despite=()):
        """What keeps a run from being published, in sentences; nothing about `despite`: peers, or limits."""
        texts = []
        if self.data["interrupted"]:
            texts.append("the run was interrupted")
        if self.is_disturbed:
            texts.append(f"other programs used {self.data['busy_elsewhere']:.0%} of the processors during the run")
        if not any(row.counts for row in self.rows):
            texts.append("no row was measured against two other libraries")
        texts += [*self.noise_doubts(), *self.faults()]
        for name, named_texts in self.named_objections().items():
            texts += [] if name in despite else named_texts
        return texts

    def named_objections(self):
        """{name: sentences} of what is wrong with peers and with "limits"."""
        found = {}
        contradicted = "; ".join(self.limits["contradictions"])
        texts = [("limits", f"the limits of the machine contradict each other: {contradicted}")] if contradicted else []
        texts += [(name, f"{name} is missing: {reason}") for name, reason in self.missing
                 if not reason.startswith(NOT_FOR_THIS_MACHINE)]
        texts += [(name, f"{name} is wrong in {row['name']}") for row, name in self.wrong()]
        texts += [(name, f"{name} stopped in {row['name']}: {reason}") for row, name, reason in self.stopped()]
        for name, text in [*texts, *((name, each) for name, sentences in self.abnormal().items() for each in sentences)]:
            found.setdefault(name, []).append(text)
        return found

    def reservations(self):
        """What makes the run worth less, in sentences."""
        return [*self.doubts(), *self.remarks()]

    def doubts(self):
        """What makes the whole run worth less."""
        texts = []
        if self.data["interrupted"]:
            texts.append("Interrupted: these are the rows measured before.")
        if self.is_disturbed:
            texts.append(
                f"Other programs used {self.data['busy_elsewhere']:.0%} of the processors during the run, which may "
                "have disturbed rows on all threads.")
        return texts + self.noise_doubts()

    def noise_doubts(self):
        """A sentence where the rows differ too much from themselves, with what to do; else none."""
        noise = median_noise(self.rows)
        found = [f"the median noise of its rows is {noise:.0%}"] if noise > NOISY else []
        families = [(group, median_noise(rows)) for group, rows in self.groups().items()]
        found += [f"that of {group} is {each:.0%}" for group, each in families if each > HIDDEN]
        if not found:
            return []
        return [f"This run is doubtful: {' and '.join(found)}, and a difference below the noise says nothing. Let "
                "nothing else run on this machine, and call ./run bench again."]

    def remarks(self):
        """What is odd in single rows and limits."""
        texts = []
        beyond = [row for row in self.rows if row.is_beyond_limit]
        if beyond:
            why = ("other programs disturbed the limit in its turns" if self.is_disturbed else
                   "the loop that stands for the limit is not the fastest way to move the bytes there")
            texts.append(
                f"† {len(beyond)} row{'s' if len(beyond) > 1 else ''} took less time than the limit by more than the "
                f"noise, measured three times: {why} ({', '.join(row['name'] for row in beyond)}).")
        if self.limits["contradictions"]:
            limits = "; ".join(self.limits["contradictions"])
            texts.append(
                f"Limits that stayed below what another measurement of the run shows to be possible: {limits}.")
        for sentences in self.abnormal().values():
            texts += [f"‡ {each}: it does not count." for each in sentences]
        return texts

    def faults(self):
        """Rows in which the library was wrong or failed."""
        texts = []
        for row in self.every_row:
            if row["is_wrong"]:
                texts.append(f"WRONG RESULT of halyard: {row['name']}")
            if row["failure"]:
                texts.append(f"FAILED: {row['name']}: {row['failure']}")
        return texts

    # ---- limits of the machine ----

    def bandwidth(self, level, stream, threads):
        for each in self.limits["bandwidth"]:
            if (each["level"], each["stream"], each["threads"]) == (level, stream, threads):
                return each["bytes_per_second"]
        return None

    def levels(self):
        return list(dict.fromkeys(each["level"] for each in self.limits["bandwidth"]))

    def roofs(self):
        """{instruction: the rate of its multiply-adds on all threads}, of those that the rows could use."""
        used = {F32_INSTRUCTION}
        if any(row.has_bf16_products for row in self.rows):
            used |= set(BF16_INSTRUCTIONS.values())
        if any(row.has_int8_products for row in self.rows):
            used.add(INT8_INSTRUCTION)
        roofs = {}
        for each in self.limits["flops"]:
            name = INT8_INSTRUCTION if each.get("int8") else BF16_INSTRUCTIONS.get(each["isa"], F32_INSTRUCTION)
            if each["threads"] == self.threads and name in used:
                roofs[name] = max(each["flops_per_second"], roofs.get(name, 0))
        return roofs

    def roof_of(self, row):
        """(instruction, rate) of the highest roof that is the row's."""
        own = {F32_INSTRUCTION}
        if row.has_bf16_products:
            own |= set(BF16_INSTRUCTIONS.values())
        if row.has_int8_products:
            own.add(INT8_INSTRUCTION)
        return max(((name, rate) for name, rate in self.roofs().items() if name in own), key=lambda each: each[1])


def counted_text(tally):
    return (
        f"Of {tally['rows']} rows with at least two independent libraries, halyard is faster than each in "
        f"{tally['ahead']}, tied with the fastest in {tally['tied']} and behind it in {tally['behind']}")


def median_noise(rows):
    """How far rows are from themselves."""
    return statistics.median([row["noise"] for row in rows] or [0.0])


def counts_of(verdicts):
    count = Counter(verdicts)
    return {"rows": sum(count.values()), "ahead": count["ahead"], "tied": count["tie"], "behind": count["behind"]}


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


# ---- how things are written ----


def time_text(seconds):
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1, 1e3, "ms")):
        if seconds < limit:
            return f"{significant(seconds * factor)} {unit}"
    return f"{significant(seconds)} s"


def significant(value, digits=3):
    """Three digits that count, without an exponent."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def bytes_text(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def ratio_text(ratio):
    return "–" if ratio is None else f"{ratio:.2f}×"


def ulp_text(ulps):
    """None stands for infinity, as in the JSON."""
    if ulps is None:
        return "∞"
    return f"{ulps:.2g}" if ulps < 10 else f"{ulps:.0f}" if ulps < 1e5 else f"{ulps:.0e}"


def threads_text(count):
    return "1 thread" if count == 1 else f"{count} threads"
