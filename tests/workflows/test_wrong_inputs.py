"""Messages on wrong inputs, word by word: of workflow files, of the configurations they name, of commands.

The tables beside this file hold changes of the tiny workflow files: mistakes, and what is warned about. A
message that is to read otherwise is changed there as well.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tiny_hisq_mesons import HISQ_MESONS
from tiny_laph import LAPH
from tiny_mesons import MESONS
from tiny_project import TINY, CommandLine

from stages.base.errors import InputError
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice
from workflows.catalogue import load_project

TABLES = Path(__file__).parent / "wrong_inputs"
TARGETED = TINY.replace("  vectors: 4\n", "").replace(", vectors: 2}", "}") + "target: {loops: 0.2}\n"
TINY_FILES = {
    "g2_disconnected": TINY,
    "target": TARGETED,
    "mesons": MESONS,
    "hisq_mesons": HISQ_MESONS,
    "laph_mesons": LAPH,
}
HEATBATH = TINY.splitlines(keepends=True)[2]
DAMAGED = "; the file is damaged or mislabelled: fetch it again from its source; list it under `exclude`"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(content: bytes) -> str:
    """Message on a workflow file, or warnings; that it is accepted, if it is without any."""
    Path("f.yaml").write_bytes(content)
    try:
        warnings = load_project(Path("f.yaml")).warnings
    except InputError as error:
        return str(error).removeprefix("f.yaml: ")
    return "\n".join(f"warning: {each.removeprefix('f.yaml: ')}" for each in warnings) or "accepted"


def test_sections_about_a_cluster() -> None:
    expected = YAML(typ="safe").load(TABLES / "cluster.yaml")
    first, *rest = TINY.splitlines()
    assert {put: said("\n".join([first, put, *rest]).encode()) for put in expected} == expected


@pytest.mark.parametrize("name", TINY_FILES)
def test_changes_of_a_file(name: str) -> None:
    tiny = TINY_FILES[name]
    assert load_project(written(tiny)).workflow.nodes
    expected = YAML(typ="safe").load(TABLES / f"{name}.yaml")
    assert all(tiny.count(text) == 1 for text in expected)
    assert {
        text: {put: said(tiny.replace(text, put).encode()) for put in entries}
        for text, entries in expected.items()
    } == expected


def written(text: str) -> Path:
    Path("good.yaml").write_text(text)
    return Path("good.yaml")


def test_whole_files() -> None:
    expected = YAML(typ="safe").load(TABLES / "whole_files.yaml")
    assert {text: said(text.encode()) for text in expected} == expected


@pytest.mark.parametrize(
    ("content", "byte"),
    [
        ("workflow: mésons\n".encode("latin-1"), "0xe9 at 11"),
        ("workflow: mesons\n".encode("utf-16"), "0xff at 0"),
        (bytes.fromhex("874e0000") + bytes(92), "0x87 at 0"),
        (bytes.fromhex("456789ab00010000") + bytes(136), "0x89 at 2"),
    ],
    ids=["latin-1", "utf-16", "MILC", "LIME"],
)
def test_files_of_no_text(content: bytes, byte: str) -> None:
    assert said(content) == (
        f"cannot be read as a text file: byte {byte} is no UTF-8; write the file in UTF-8, and give gauge "
        "configurations to `quarkline check`"
    )


PATTERN = "`ensemble.files` (line 3): a pattern in quotes or a list of such is expected, got "
OF_LABELS = "`ensemble.labels` (line 4): "
NOT_FOUND = "`ensemble.files` (line 3): no file matches "
FILES = {
    "'no/*.ildg'": NOT_FOUND + "'no/*.ildg', looking from HERE",
    "'$HOME/c/*.ildg'": NOT_FOUND
    + "'$HOME/c/*.ildg', looking from HERE; variables are not expanded: write the folder out",
    "'{good,bad}.ildg'": NOT_FOUND
    + "'{good,bad}.ildg', looking from HERE; braces are not expanded: give a list of patterns",
    "\u201cgood.ildg\u201d": NOT_FOUND
    + "'\u201cgood.ildg\u201d', looking from HERE; \u201c is a letter of the name here: write plain quotes, "
    "' or \"",
    "{a: b}": PATTERN + "{'a': 'b'}",
    "[good.ildg, 5]": PATTERN + "['good.ildg', 5]",
    "": "`ensemble` (line 2): give either `heatbath` or `files`, and not both",
    ".": "`ensemble.files` (line 3): .: this is a folder; name a gauge-field file in it; list it "
    "under `exclude`",
    "[good.ildg, other.ildg]": "`ensemble.files` (line 3): other.ildg is a lattice of 4x4x4x2, but good.ildg "
    "is one of 4x4x4x4: list it under `exclude`",
    "[good.ildg, copy/good.ildg]": "`ensemble.files` (line 3): copy/good.ildg and good.ildg have the same "
    'name, which is the configuration\'s label: write `labels: "{parent}/{name}"` into `ensemble`, or '
    "rename one",
    "[good.ildg, copy/good.ildg]\n  labels: '{stem}'": OF_LABELS
    + "copy/good.ildg and good.ildg have the same "
    "label, 'good': write `labels: \"{parent}/{name}\"` into `ensemble`, or rename one",
    "[good.ildg, copy/good.ildg]\n  labels: '{parent}/{stem}'": "accepted",
    "good.ildg\n  labels: '{stream}/{name}'": OF_LABELS
    + "{stream} in '{stream}/{name}' is no part of a file's "
    "name: take {name}, {stem}, {parent}, {grandparent}",
    "good.ildg\n  labels: '{}'": OF_LABELS + "{} in '{}' is no part of a file's name: take {name}, {stem}, "
    "{parent}, {grandparent}",
    "good.ildg\n  labels: '{name!r}'": OF_LABELS + "'{name!r}' has more than a part of a file's name between "
    "braces: write {name}",
    "good.ildg\n  labels: '{stem:>9}'": OF_LABELS
    + "'{stem:>9}' has more than a part of a file's name between "
    "braces: write {stem}",
    "good.ildg\n  labels: '{name'": OF_LABELS + "'{name' has a brace without its partner: write such as "
    "{parent}/{name}",
    "good.ildg\n  labels: a": OF_LABELS
    + "'a' would be the label of every file: take parts of its name, {name}, "
    "{stem}, {parent}, {grandparent}",
    'good.ildg\n  labels: "{name}\\n"': OF_LABELS + "good.ildg would have the label 'good.ildg\\n': write "
    "labels of characters that can be printed",
    "good.ildg\n  labels: '{stem}'\n  exclude: [good.ildg]": "`ensemble.exclude` (line 5): 'good.ildg' is "
    "the label of no configuration: did you mean 'good'?",
    "empty.ildg": "`ensemble.files` (line 3): empty.ildg: the file is empty" + DAMAGED,
    "text.ildg": "`ensemble.files` (line 3): text.ildg: is not a gauge file in any known format (it begins "
    "with b'bring mi', 0x6e697262); ILDG, SciDAC, NERSC, MILC v5, openQCD and DDalphaAMG files can be read; "
    "list it under `exclude`",
    "short.ildg": "`ensemble.files` (line 3): short.ildg: truncated: its record 'scidac-private-record-xml' "
    "takes 285 bytes, the file has 28" + DAMAGED,
    "wide.ildg": "`ensemble.files` (line 3): wide.ildg: a 8x4x4x4 lattice with 576 bytes per site takes "
    "294912 bytes, its data have 147456" + DAMAGED,
    "typeless.nersc": "`ensemble.files` (line 3): typeless.nersc: its header has no DATATYPE" + DAMAGED,
    "endless.nersc": "`ensemble.files` (line 3): endless.nersc: truncated or damaged: its NERSC header "
    "has no "
    "END_HEADER" + DAMAGED,
    "short.milc": "`ensemble.files` (line 3): short.milc: truncated: a MILC header takes 96 bytes, the file "
    "has 94" + DAMAGED,
    "good.ildg\n  exclude: [godo.ildg]": "`ensemble.exclude` (line 4): 'godo.ildg' is the label of no "
    "configuration: did you mean 'good.ildg'?",
    "good.ildg\n  exclude: [good.ildg]": "`ensemble.exclude` (line 4): leaves no configuration: name fewer",
    "good.ildg\n  exclude: good.ildg": "`ensemble.exclude` (line 4) is 'good.ildg', expected a list in [ ]",
    "good.ildg\n  exclude: [5]": "`ensemble.exclude` (line 4) is 5, expected text",
    "good.ildg\n  exclude: ['*.ildg']": "`ensemble.exclude` (line 4): '*.ildg' is the label of no "
    "configuration: did you mean 'good.ildg'?",
    "good.ildg\n  labels: [a]": "`ensemble.labels` (line 4) is ['a'], expected text",
    "good.ildg\n  label: a": "unknown key `label` in `ensemble` (line 4): did you mean `labels`?",
}


def write_configuration(path: str, extents: tuple[int, int, int, int] = (4, 4, 4, 4)) -> bytes:
    lattice = Lattice(extents)
    Path(path).parent.mkdir(exist_ok=True)
    write_ildg(path, thermalised(lattice, 6.0, 3, "a", 1, 0), lattice, 64)
    return Path(path).read_bytes()


def test_configurations_in_files() -> None:
    good = write_configuration("good.ildg")
    write_configuration("copy/good.ildg")
    write_configuration("other.ildg", (4, 4, 4, 2))
    damaged = {
        "empty.ildg": b"",
        "text.ildg": b"bring milk",
        "short.ildg": good[:700],
        "wide.ildg": good.replace(b"<lx>4</lx>", b"<lx>8</lx>"),
        "typeless.nersc": b"BEGIN_HEADER\nHDR_VERSION = 1.0\nDIMENSION_1 = four\nEND_HEADER\n",
        "endless.nersc": b"BEGIN_HEADER\nHDR_VERSION = 1.0\n",
        "short.milc": bytes.fromhex("874e0000") + bytes(90),
    }
    for name, content in damaged.items():
        Path(name).write_bytes(content)
    expected = {given: text.replace("HERE", str(Path.cwd())) for given, text in FILES.items()}
    found = {given: said(TINY.replace(HEATBATH, f"  files: {given}\n").encode()) for given in expected}
    assert found == expected


NO_COUNT = "is no whole number of at least 1"
OF_PORTS = "is no port: give 1 to 65535, or 0 for any free one"
OF_CLUSTERS = (
    "(a cluster that runs already: tcp://host:port or the path of its scheduler file; one of your own: a "
    "YAML file)"
)
KINDS = "known: local, cuda, slurm, pbs, lsf"
NO_PORT = "has no port of 1 to 65535: write it as tcp://host:8786"
NO_FILE = "cannot be read as a text file: it is a device or a named pipe, name a file"

COMMANDS = {
    "run g2.yaml --workers 0": f"Invalid value for '--workers': '0' {NO_COUNT}",
    "run g2.yaml --workers two": f"Invalid value for '--workers': 'two' {NO_COUNT}",
    "run g2.yaml --workers=-1": f"Invalid value for '--workers': '-1' {NO_COUNT}",
    "run g2.yaml --workers 1.5": f"Invalid value for '--workers': '1.5' {NO_COUNT}",
    "run g2.yaml --dashboard-port 70000": f"Invalid value for '--dashboard-port': '70000' {OF_PORTS}",
    "run g2.yaml --dashboard-port http": f"Invalid value for '--dashboard-port': 'http' {OF_PORTS}",
    "run g2.yaml --time-limit 0m": "Invalid value for '--time-limit': '0m' leaves no time: give at least 1s, "
    "or no limit",
    "run g2.yaml --time-limit 2days": "Invalid value for '--time-limit': '2days' is no duration; write 90s, "
    "45m, 1h30m or 01:30:00",
    "run g2.yaml --cluster batch": f"error: no cluster 'batch'; {KINDS} {OF_CLUSTERS}",
    "run g2.yaml --cluster ''": f"error: no cluster ''; {KINDS} {OF_CLUSTERS}",
    "run g2.yaml --cluster tcp:1": f"error: no cluster 'tcp:1'; {KINDS} {OF_CLUSTERS}",
    "plan g2.yaml --cluster cuda:9": f"error: no cluster 'cuda:9': did you mean 'cuda'? {OF_CLUSTERS}",
    "run g2.yaml --cluster tcp://nowhere": f"error: cluster 'tcp://nowhere' {NO_PORT}",
    "run g2.yaml --cluster tcp://nowhere:port": f"error: cluster 'tcp://nowhere:port' {NO_PORT}",
    "run g2.yaml --cluster tcp://nowhere:99999": f"error: cluster 'tcp://nowhere:99999' {NO_PORT}",
    "run g2.yaml --cluster g2.yaml": "error: g2.yaml is a workflow file: its own section `cluster` is used "
    "where --cluster is left out",
    "run g2.yaml --cluster good.ildg": "error: cluster 'good.ildg' is no scheduler file: give the one that "
    "`dask scheduler --scheduler-file` writes, or tcp://host:port",
    "run g2.yaml --cluster sit.yaml": "error: there is no cluster file 'sit.yaml': did you mean site.yaml?",
    "run g2.yaml --cluster g3.yaml": "error: there is no cluster file 'g3.yaml': quarkline init slurm_gpu "
    "writes one",
    "verify good.ildg": "error: good.ildg is a file: give a store's folder or a workflow file, and gauge "
    "configurations to `quarkline check`",
    "plan g2.yaml --cluster site.yaml": "error: site.yaml: `cluster.gpus` (line 2) is 'two', expected a "
    "whole number",
    "run g2.yaml --set walltime=2h": "error: g2.yaml: unknown key `walltime` at the top level (--set "
    "walltime=2h); known: workflow, ensemble, analysis, cluster, store, report, links, masses, noise, "
    "deflation, "
    "estimator, alternatives, solves, current, exact, target",
    "run g2.yaml --set masses.light": "error: --set masses.light: write KEY=VALUE with the key as in the "
    "file, "
    "its sections before it: masses.light=0.1, cluster.walltime=04:00:00",
    "plan g2.yaml --set masses..light=1": "error: --set masses..light=1: write KEY=VALUE with the key as "
    "in the "
    "file, its sections before it: masses.light=0.1, cluster.walltime=04:00:00",
    "plan g2.yaml --set mases.light=0.1": "error: g2.yaml: unknown key `mases` at the top level (--set "
    "mases.light=0.1): did you mean `masses`?",
    "plan g2.yaml --set masses.ligth=0.1": "error: g2.yaml: unknown key `ligth` in `masses` (--set "
    "masses.ligth=0.1): did you mean `light`?",
    "plan g2.yaml --set masses.light=heavy": "error: g2.yaml: `masses.light` (--set masses.light=heavy) is "
    "'heavy', expected a number",
    "plan g2.yaml --set masses.light=": "error: g2.yaml: `masses.light` (--set masses.light=) is empty, "
    "expected "
    "a number",
    "plan g2.yaml --set noise.vectors=3": "error: g2.yaml: `noise.chunk` (line 10): 2 does not divide the "
    "3 noise "
    "vectors: change one of the two",
    "plan g2.yaml --set noise.chunk=3": "error: g2.yaml: `noise.chunk` (--set noise.chunk=3): 3 does not "
    "divide "
    "the 4 noise vectors: change one of the two",
    "plan g2.yaml --set masses.light.x=1": "error: --set masses.light.x=1: `x` is set in what is no "
    "section: set "
    "the whole of it",
    "plan g2.yaml --set ensemble.heatbath.extents.4=8": "error: --set ensemble.heatbath.extents.4=8: `4` "
    "is no "
    "place in a list with values 0 to 3: set the whole list",
    "plan g2.yaml --set ensemble.heatbath.extents.3=7": "error: g2.yaml: `ensemble.heatbath.extents` (line "
    "3, "
    "--set ensemble.heatbath.extents.3=7): lattice extents must be four even numbers of at least 2 (x y z "
    "t), got "
    "(4, 4, 4, 7): fields are stored by parity",
    "plan g2.yaml --set masses={light:": "error: --set masses={light:: not valid YAML: "
    "expected the "
    "node content, but found '<stream end>': close the brackets",
    "plan g2.yaml --set ensemble.files=*.x": "error: --set ensemble.files=*.x: not valid YAML: "
    "found "
    "undefined alias '.x': define it above by &, or put text that begins with * into quotes",
    "plan g2.yaml --set masses.light=!!x": "error: --set masses.light=!!x: a parameter file has no tags, got "
    "'tag:yaml.org,2002:x': remove it",
    "plan g2.yaml noise.seed=1": "Got unexpected extra argument(s) (noise.seed=1): put shell patterns into "
    "quotes, and repeat an option for each value",
    "plan g2.yaml --set workflow=mesno": "error: g2.yaml: `workflow` (--set workflow=mesno) is 'mesno': "
    "did you "
    "mean `mesons`?",
    "export g2.yaml --set cluster.kidn=cuda": "error: g2.yaml: unknown key `kidn` in `cluster` (--set "
    "cluster.kidn=cuda): did you mean `kind`?",
    "gc g2.yaml --set noise.sead=1": "error: g2.yaml: unknown key `sead` in `noise` (--set noise.sead=1): "
    "did "
    "you mean `seed`?",
    "status store --set noise.seed=1": "error: --set noise.seed=1: store is a store, and keys are set in a "
    "workflow file",
    "run g2.yaml --cluster site.yaml --set cluster.gpus=2 --set cluster.wall=2h": "error: site.yaml: unknown "
    "key `wall` in `cluster` (--set cluster.wall=2h): did you mean `walltime`?",
    "run g2.yaml --set cluster.gpus=2": "error: g2.yaml: `cluster.gpus` (--set cluster.gpus=2): kind local "
    "takes no `gpus`: leave it out",
    "run g2.yaml --set cluster.gpus=[2": "error: --set cluster.gpus=[2: not valid YAML: expected "
    "',' or ']', but got '<stream end>': close the brackets",
    "run g2.yaml --gpus-per-worker 2": "error: --gpus-per-worker 2: workers of kind local have no GPU: take "
    "--cluster cuda",
    "plan g2.yaml --cluster cuda --gpus-per-worker 0": "Invalid value for '--gpus-per-worker': "
    f"'0' {NO_COUNT}",
    "submit g2.yaml --cluster site.yaml --set cluster.gpus=4 --gpus-per-worker 3": "error: site.yaml: "
    "`cluster.gpus_per_worker` (--gpus-per-worker 3): 3 does not divide the 4 `gpus` of a job or host: take "
    "1 or 2 or 4",
    "plan g2.yaml --cluster cuda --gpus-per-worker 2": "error: 4 time slices cannot be "
    "spread over 2 GPUs: hops reach 3 slices, and each GPU must hold so many; take one GPU",
    "run g2.yaml --cluster tcp://h:8786 --workers 2": "error: --workers 2: the workers of tcp://h:8786 are "
    "given elsewhere; leave it out",
    "run g2.yaml --cluster tcp://h:8786 --dashboard-port 2": "error: --dashboard-port 2: the dashboard of "
    "tcp://h:8786 is started elsewhere; leave it out",
    "run g2.yaml --store g2.yaml": "error: store HERE/g2.yaml cannot be read: Not a directory: a store is a "
    "folder, and this path is that of a file or goes through one",
    "plan pipe.yaml": f"error: pipe.yaml: {NO_FILE}",
    "plan /dev/zero": f"error: /dev/zero: {NO_FILE}",
    "run g2.yaml --cluster pipe.yaml": f"error: pipe.yaml: {NO_FILE}",
    "submit g2.yaml --cluster pipe.yaml": f"error: pipe.yaml: {NO_FILE}",
    "gc pipe.yaml": f"error: pipe.yaml: {NO_FILE}",
    "verify pipe.yaml": f"error: pipe.yaml: {NO_FILE}",
    "plan long.yml": "error: long.yml: has more than 4194304 bytes, and no workflow or cluster file comes "
    "near that; name one, and give gauge configurations to `quarkline check`",
    "status s": "error: store HERE/s cannot be read: HERE/s/quarkline.json is no file: put a file with "
    '{"format": 2} in its place',
    "run .": "error: .: cannot be read as a text file: it is a folder, name a file in it",
    "plan nothing.yaml": "error: nothing.yaml: no such workflow file: did you mean g2.yaml?",
    "plan g2.yaml --store .": "error: HERE is a folder, but not a quarkline store: choose another",
    "status nowhere": "error: there is no store at HERE/nowhere",
    "dashboard nowhere": "error: there is no store at HERE/nowhere",
    "dashboard g2.yaml --port 70000": f"Invalid value for '--port': '70000' {OF_PORTS}",
    "verify .": "error: HERE is a folder, but not a quarkline store: choose another",
    "gc g2.yaml two.yaml": "error: these workflows use 2 stores: say which one, --store FOLDER",
    "gc g2.yaml --store nowhere": "error: there is no store at HERE/nowhere",
    "export g2.yaml --to xlsx": "Invalid value for '--to': 'xlsx' is not one of 'zarr', 'hdf5', 'csv', "
    "'gvar', 'pyerrors'.",
    "export g2.yaml --format json": "Invalid value for '--format': 'json' is not one of 'zarr', 'hdf5', "
    "'both'.",
    "check nothing.ildg": "error: nothing.ildg: no such file; check the name",
    "check .": "error: .: this is a folder; name a gauge-field file in it",
    "convert nothing.ildg b.ildg": "error: nothing.ildg: no such file; check the name",
    "convert good.ildg b.xyz": "error: b.xyz: its name does not tell the format to write; end it in .ildg or "
    ".lime, .nersc, .milc, or give --format ildg, nersc, milc",
    "convert good.ildg b.ildg --format hdf5": "Invalid value for '--format': 'hdf5' is not one of 'ildg', "
    "'nersc', 'milc'.",
    "convert good.ildg b.ildg --precision half": "Invalid value for '--precision': 'half' is not one of "
    "'single', 'double'.",
    "convert good.ildg good.ildg": "error: good.ildg: this is the file that is read; give another name",
    "convert good.ildg no/such/b.ildg": "error: no/such/b.ildg: its folder no/such does not exist; make it "
    "first",
    "convert good.ildg b.milc --precision double": "error: b.milc: MILC v5 files have single precision; "
    "write "
    "ildg or nersc, or leave it out",
    "init g2": "error: there is no file 'g2' to start from; known: g2_disconnected, g2_low_modes, "
    "hisq_mesons, laph_mesons, mesons, cuda_node, gpu_job, pbs_gpu, running_cluster, slurm_cpu, "
    "slurm_gpu, ssh_hosts",
    "init mesons g2.yaml": "error: g2.yaml exists: give another name, or remove it first",
    "init mesons no/such/m.yaml": "error: cannot write no/such/m.yaml: No such file or directory: make the "
    "folder no/such first",
    "schema meson": "error: no workflow is named 'meson': did you mean `mesons`?",
    "bench --backend gpu": "Invalid value for '--backend': 'gpu' is not one of 'cpu', 'cuda'.",
    "bench --precision quarter": "Invalid value for '--precision': 'quarter' is none of half, single, double",
    "bench --rhs x": "Invalid value for '--rhs': 'x' is no list of numbers such as 8,16,32",
}


def test_commands(quarkline: CommandLine) -> None:
    write_configuration("good.ildg")
    Path("g2.yaml").write_text(TINY)
    Path("site.yaml").write_text("kind: slurm\ngpus: two\n")
    os.mkfifo("pipe.yaml")
    Path("long.yml").touch()
    os.truncate("long.yml", 1 << 40)
    Path("s").mkdir()
    os.mkfifo("s/quarkline.json")
    Path("two.yaml").write_text(TINY.replace("store: store", "store: two"))
    expected = {line: text.replace("HERE", str(Path.cwd())) for line, text in COMMANDS.items()}
    assert {line: answered(quarkline, line) for line in expected} == expected
    assert not Path("store").exists()


def answered(quarkline: CommandLine, line: str) -> str:
    """Message of a command that ends with exit code 2, without the frame around it."""
    answer = quarkline(*shlex.split(line))
    assert answer.code == 2 and answer.out == "" and "Traceback" not in answer.err, line
    text = " ".join(re.sub(r"╭─ Error ─+╮|[╭╮╰╯│─]", "", answer.err).split())
    return re.sub(r"^Usage: .* for help\. (Error: )?", "", text)
