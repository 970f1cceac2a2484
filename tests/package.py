"""The archives of python/ and its README; an assertion that fails is the error.

    package.py archives    builds both, checks their metadata and files, and uses the wheel without anything else
    package.py types       mypy, strict
    package.py readme      each block of Python of python/README.md, by itself
    package.py tests       the tests of python/tests

The answer is the number of what was tried, as JSON. It runs in the root of the repository, with the packages that
`cargo xtask setup` installs, and without the network.
"""

import contextlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import distribution

PYTHON = pathlib.Path("python").resolve()
#: Uses what needs no option; its output is the number of lines.
USE = "import uncore_trace as u; r = u.read('samples/grace'); print(len(u.sums(r)), len(u.windows(r)), u.__file__)"


def run(*args, cwd=None):
    done = subprocess.run([str(arg) for arg in args], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"{args}: {done.stdout}"
    return done.stdout


def archives():
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        # A build writes beside the source.
        source = shutil.copytree(PYTHON, temporary / "source")
        dist = temporary / "dist"
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source)
        (wheel,), (sdist,) = dist.glob("*-py3-none-any.whl"), dist.glob("*.tar.gz")
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
        own = {path.name for path in PYTHON.glob("uncore_trace/*") if path.is_file()}
        names = zipfile.ZipFile(wheel).namelist()
        assert own == {name.partition("/")[2] for name in names if name.startswith("uncore_trace/")}, names
        assert {"py.typed", "SKILL.md"} <= own
        with tarfile.open(sdist) as files:
            listed = {file.name.partition("/")[2] for file in files if file.isfile()}
        for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "tests/test_uncore_trace.py"]:
            assert name in listed, (name, listed)
        metadata = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("/METADATA"))).decode()
        workspace = pathlib.Path("Cargo.toml").read_text()
        for line, pattern in [("Version: ", 'version = "(.*)"'), ("Project-URL: Repository, ", 'repository = "(.*)"')]:
            assert f"\n{line}{re.search(f'^{pattern}$', workspace, re.M)[1]}\n" in metadata, metadata
        assert metadata.count("\nLicense-File: LICENSE-") == 2, metadata
        return installed(temporary / "clean", wheel, metadata)


def installed(clean, wheel, metadata):
    """In an environment that has only what the metadata require."""
    run(sys.executable, "-m", "venv", "--without-pip", clean)
    run(sys.executable, "-m", "pip", "--python", clean / "bin/python", "install", "--no-index", "--no-deps", wheel)
    (site,) = clean.glob("lib/python*/site-packages")
    required = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.M)
    for name in required:
        for top in {file.parts[0] for file in distribution(name).files} - {".."}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution(name).locate_file(top))
    out = run(clean / "bin/python", "-c", USE)
    assert str(clean) in out and int(out.split()[0]) > 10, out
    return len(required)


def readme():
    blocks = re.findall(r"^```python\n(.*?)^```$", (PYTHON / "README.md").read_text(), re.S | re.M)
    for block in blocks:
        assert len(block.splitlines()) <= 5, block
        with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stdout(io.StringIO()) as out:
            picture = pathlib.Path(temporary, "who.png")
            exec(compile(block.replace("/tmp/who.png", str(picture)), "<block>", "exec"), {})
            assert "/lab/train" in out.getvalue() or picture.read_bytes().startswith(b"\x89PNG"), block
    return len(blocks)


match sys.argv[1:]:
    case ["archives"]:
        answer = archives()
    case ["types"]:
        answer = int(re.search(r"no issues found in (\d+)", run(sys.executable, "-m", "mypy", "--cache-dir", "/dev/null", cwd=PYTHON))[1])
    case ["readme"]:
        sys.path.insert(0, str(PYTHON))
        answer = readme()
    case ["tests"]:
        found = run(sys.executable, "-m", "unittest", "discover", "-s", "tests", cwd=PYTHON)
        assert "skipped" not in found, found
        answer = int(re.search(r"Ran (\d+) tests", found)[1])
    case other:
        sys.exit(f"unknown: {other}")
json.dump(answer, sys.stdout)
