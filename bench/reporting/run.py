"""Reads the JSON of halyard-bench, and says what the report wants to know of it."""

import json
import math
import statistics
from collections import OrderedDict

SCHEMA = 2

# Operations per element that the formula of a kernel has, for its place in the roofline plot: additions,
# multiplications, divisions and comparisons count one, an elementary function ten. Rows with matrix products have true
# counts.
ELEMENTARY = 10
OPERATIONS = {
    "rms_norm": 4,
    "partial_rms_norm": 2,
    "layer_norm": 8,
    "add_rms_norm": 5,
    "add_layer_norm": 9,
    "softmax": 4 + ELEMENTARY,
    "relu": 1,
    "relu2": 2,
    "gelu": 4 + ELEMENTARY,
    "gelu_tanh": 8 + ELEMENTARY,
    "gelu_sigmoid": 4 + ELEMENTARY,
    "silu": 3 + ELEMENTARY,
    "swish": 4 + ELEMENTARY,
    "sigmoid": 2 + ELEMENTARY,
    "tanh": ELEMENTARY,
    "exp": ELEMENTARY,
    "glu": 3 + ELEMENTARY,
    "bilinear": 1,
    "reglu": 2,
    "geglu": 5 + ELEMENTARY,
    "geglu_tanh": 9 + ELEMENTARY,
    "swiglu": 4 + ELEMENTARY,
    "add": 1,
    "cast": 1,
}
OWN = "(this library)"  # the version of peers that are other ways to call the library
OWN_ALGORITHMS = "halide-"  # how peers begin that are its algorithms with a schedule of one of Halide's autoschedulers


# What a file that is not as it should be gives where it is read.
DAMAGE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


class Damaged(Exception):
    """A sentence for the user."""


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file, parse_constant=no_constant)
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("rows"), list):
        raise Damaged(f"{path} is no result of halyard-bench of this version (schema {SCHEMA})")
    for index, row in enumerate(data["rows"]):
        try:
            Row(row).check()
        except DAMAGE as error:
            name = row.get("name", "without a name") if isinstance(row, dict) else "no object"
            raise Damaged(f"{path}: row {index} ({name}) is damaged: {type(error).__name__}: {error}") from None
    try:
        return Run(data)
    except DAMAGE as error:
        raise Damaged(f"{path} is damaged: {type(error).__name__}: {error}") from None


class Row:
    """A row of the run."""

    def __init__(self, data):
        self.data = data

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
                float(self[key]["median"]), float(self[key]["mad"])
            float(self["noise"]), float(self["bytes"])
            if self.seconds <= 0:
                raise ValueError("a time that is not positive")
        for name, peer in self["peers"].items():
            if "ratio" in peer:
                float(peer["ratio"]["median"]), float(peer["noise"])
                if peer["verdict"] not in ("ahead", "tie", "behind") or peer["ratio"]["median"] <= 0:
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
        return "flops" in self.data

    @property
    def bound_by(self):
        if not self.has_roofline:
            return "copy"
        return "reading" if self["read_seconds"]["median"] >= self["multiply_add_seconds"]["median"] else "arithmetic"

    @property
    def operations(self):
        """Of one call; None where nobody counted."""
        if self.has_roofline:
            return self["flops"]
        per_element = OPERATIONS.get(self["kernel"].split(".")[0].split("_to_")[0])
        return None if per_element is None else per_element * self["rows"] * self["d"]

    @property
    def shape(self):
        return self["name"].split("/")[2]

    @property
    def bytes_per_second(self):
        return self["bytes"] / self.seconds

    def peer(self, name):
        return self["peers"].get(name, {})

    def ratio(self, name):
        """Time of the peer over ours; None if there is none that counts."""
        ratio = self.peer(name).get("ratio")
        return ratio["median"] if ratio else None


class Run:
    def __init__(self, data):
        self.data = data
        self.every_row = [Row(row) for row in data["rows"]]
        self.rows = [row for row in self.every_row if row.is_measured]
        self.peers = [peer["name"] for peer in data["peers"] if not peer["missing"]]
        self.own_peers = {
            peer["name"] for peer in data["peers"] if peer["version"] == OWN or peer["name"].startswith(OWN_ALGORITHMS)
        }
        self.missing = [(peer["name"], peer["missing"]) for peer in data["peers"] if peer["missing"]]
        self.versions = {peer["name"]: peer["version"] for peer in data["peers"]}
        self.threads, self.machine, self.limits = int(data["threads"]), data["machine"], data["limits"]
        self.library, self.bars, self.mode = data["library"], data["bars"], data["mode"]

    def peers_of(self, rows, with_own=True):
        """Peers with a time, or a wrong result, in one of the rows."""
        return [
            name
            for name in self.peers
            if (with_own or name not in self.own_peers)
            and any(row.ratio(name) or row.peer(name).get("is_wrong") for row in rows)
        ]

    def groups(self):
        """{group: rows}, in the run's order."""
        groups = OrderedDict()
        for row in self.rows:
            groups.setdefault(row["group"], []).append(row)
        return groups

    def fastest_peer(self, row):
        """(name, ratio, verdict) of the peer that takes least time, of other libraries alone; None without one."""
        times = [(row.ratio(name), name) for name in self.peers if name not in self.own_peers and row.ratio(name)]
        if not times:
            return None
        ratio, name = min(times)
        return name, ratio, row.peer(name)["verdict"]

    def worst(self, rows, most):
        """At most so many of the rows: those where the fastest peer, or else the limit, is furthest ahead; in their
        order."""
        if len(rows) <= most:
            return rows

        def rank(index):
            fastest = self.fastest_peer(rows[index])
            return (0, fastest[1]) if fastest else (1, rows[index].fraction)

        chosen = set(sorted(range(len(rows)), key=rank)[:most])
        return [row for index, row in enumerate(rows) if index in chosen]

    def tally(self, name):
        """Rows, ahead, tied, behind, wrong and geometric mean of a peer."""
        verdicts = [row.peer(name).get("verdict") for row in self.rows]
        wrong = sum(1 for row in self.rows if row.peer(name).get("is_wrong"))
        ratios = [row.ratio(name) for row in self.rows if row.ratio(name)]
        return {
            "rows": len(ratios),
            "ahead": verdicts.count("ahead"),
            "tied": verdicts.count("tie"),
            "behind": verdicts.count("behind"),
            "wrong": wrong,
            "mean": geometric_mean(ratios),
        }

    @property
    def is_disturbed(self):
        """Whether others used so much of the processors that rows on all threads may be wrong."""
        return self.data["busy_elsewhere"] > 0.05

    def reservations(self):
        """What makes the whole run worth less, in sentences."""
        texts = []
        if self.data["interrupted"]:
            texts.append("The run was interrupted; these are the rows measured before.")
        if self.is_disturbed:
            texts.append(
                f"Other programs used {self.data['busy_elsewhere']:.0%} of the processors during the run, which may "
                "have disturbed rows on all threads."
            )
        beyond = [row for row in self.rows if row.is_beyond_limit]
        if beyond:
            why = (
                "other programs disturbed the limit in its turns"
                if self.is_disturbed
                else "the loop that stands for the limit is not the fastest way to move the bytes there"
            )
            texts.append(
                f"† {len(beyond)} row{'s' if len(beyond) > 1 else ''} took less time than the limit by more than the "
                f"noise, measured three times: {why} ({', '.join(row['name'] for row in beyond)})."
            )
        for limit in self.limits.get("contradictions", []):
            texts.append(f"The limit '{limit}' stayed below what another measurement of the run shows to be possible.")
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

    def against_fastest(self):
        """The same of every row against whichever peer is fastest there."""
        fastest = [each for each in (self.fastest_peer(row) for row in self.rows) if each]
        verdicts = [verdict for _, _, verdict in fastest]
        return {
            "rows": len(fastest),
            "ahead": verdicts.count("ahead"),
            "tied": verdicts.count("tie"),
            "behind": verdicts.count("behind"),
            "mean": geometric_mean([ratio for _, ratio, _ in fastest]),
        }

    def behind(self):
        """(ratio, row, peer) where a peer is faster, the worst first."""
        found = [
            (row.ratio(name), row, name)
            for row in self.rows
            for name in self.peers
            if row.peer(name).get("verdict") == "behind"
        ]
        return sorted(found, key=lambda each: each[0])

    def wrong(self):
        """(row, peer) whose result missed the tolerance."""
        return [(row, name) for row in self.rows for name in self.peers if row.peer(name).get("is_wrong")]

    def stopped(self):
        """(row, peer, reason) of peers that crashed, hung or failed, as against rows they do not have."""
        signs = ("its process", "gave no answer")
        return [
            (row, name, row.peer(name)["reason"])
            for row in self.rows
            for name in self.peers
            if any(row.peer(name).get("reason", "").startswith(sign) for sign in signs)
        ]

    def bandwidth(self, level, stream, threads):
        for each in self.limits["bandwidth"]:
            if (each["level"], each["stream"], each["threads"]) == (level, stream, threads):
                return each["bytes_per_second"]
        return None

    def levels(self):
        return list(OrderedDict.fromkeys(each["level"] for each in self.limits["bandwidth"]))

    def peak(self, threads):
        """The highest rate of multiply-adds on so many threads; None if it was not measured."""
        rates = [each["flops_per_second"] for each in self.limits["flops"] if each["threads"] == threads]
        return max(rates, default=None)


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
