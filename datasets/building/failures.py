"""Why a build failed, and the line of its log that says so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchgym.sandbox.errors import PatchgymError

from .proposal import Kind

SIGNS: tuple[tuple[Kind, str], ...] = (
    ("disk", r"No space left on device|disk quota exceeded|GB free, and a build needs"),
    ("timeout", r"stopped at the recipe's timeout|not built within [\d.]+ s"),
    (
        "network",
        r"Temporary failure (in name resolution|resolving)|Name or service not known"
        r"|Failed to establish a new connection|Could not resolve host|dns error"
        r"|Network is unreachable|Connection (refused|reset by peer|timed out)|Read timed out"
        r"|CERTIFICATE_VERIFY_FAILED|Could not connect to|EAI_AGAIN|ENOTFOUND"
        r"|HTTP status (server error|client error) \((5\d\d|40[137])",
    ),
    (
        "python_version",
        r"requires a different Python|because the requested Python version|requires Python"
        r"|does not satisfy Python|image python:\S+ is not here"
        r"|Python (version )?[<>=~!]+\s*[\d.]+ (is )?(required|needed)",
    ),
    (
        "compiler_missing",
        r"(gcc|g\+\+|cc|c\+\+|x86_64-linux-gnu-gcc|x86_64-linux-gnu-g\+\+|cargo|rustc|gfortran|cmake"
        r"|ninja|make)\S*['\"]?(: command not found|: not found| failed: No such file or directory)"
        r"|command ['\"]\S*(gcc|g\+\+|cc|clang)['\"] failed: No such file"
        r"|Microsoft Visual C|unable to execute .*(gcc|g\+\+)|Unknown compiler\(s\)"
        r"|No such file or directory: ['\"](gcc|g\+\+|cc|cmake|rustc|cargo|gfortran|make)['\"]"
        r"|can't find Rust compiler|Python\.h: No such file|gcc is not installed"
        r"|No module named '(distutils|_sysconfigdata)[\w.]*'"
        r"|installation is missing `distutils`",
    ),
    (
        "system_library",
        r"fatal error: \S+\.h: No such file|cannot find -l\w+|pg_config executable not found"
        r"|(mysql|xml2|xslt|curl|gdal|geos)-config\S*[:']? (not found|is required)"
        r"|Please make sure the libxml2 and libxslt development packages"
        r"|pkg-config\S*:? (not found|is required)|Package '?\S+'? was not found in the pkg-config"
        r"|[Dd]ependency lookup for \S+ .* failed|Dependency \S+ found: NO"
        r"|error while loading shared libraries|OSError: cannot load library"
        r"|ImportError: lib\S+\.so\S*: cannot open shared object file"
        r"|The headers or library files could not be found",
    ),
    (
        "dependency_missing",
        r"No matching distribution found|Could not find a version that satisfies"
        r"|was not found in the package registry|not found in the registry"
        r"|there (are|is) no versions? of|Unable to locate package|has no installation candidate"
        r"|E404|npm ERR! 404|Because only .* (is|are) available",
    ),
    (
        "dependency_conflict",
        r"ResolutionImpossible|conflicting dependencies|have conflicting"
        r"|your requirements are unsatisfiable|ERESOLVE|are incompatible"
        r"|failed to select a version for",
    ),
)
"""In the order in which they count: the first that a log shows is the reason."""
NOT_COLLECTED = (
    r"ModuleNotFoundError: .*",
    r"ImportError: .*",
    r"error: unrecognized arguments: .*",
    r"pytest\.PytestConfigWarning: .*|ERROR: Unknown config.*",
    r"E   \w+(Error|Exception|Warning)\b.*",
    r"\w+(Error|Exception): .*",
    r"ERROR: .*",
)
"""What stops a test runner, the plainest first."""
FIXES: Mapping[str, tuple[str, ...]] = {
    "lxml": ("libxml2-dev", "libxslt1-dev", "zlib1g-dev"),
    "xmlsec": ("libxml2-dev", "libxmlsec1-dev", "pkg-config"),
    "psycopg2": ("libpq-dev",),
    "psycopg": ("libpq-dev",),
    "psycopg-c": ("libpq-dev",),
    "mysqlclient": ("default-libmysqlclient-dev", "pkg-config"),
    "pillow": ("libjpeg-dev", "zlib1g-dev", "libfreetype6-dev", "libtiff-dev"),
    "cffi": ("libffi-dev",),
    "cryptography": ("libssl-dev", "libffi-dev", "cargo", "pkg-config"),
    "pyopenssl": ("libssl-dev", "libffi-dev"),
    "pycurl": ("libcurl4-openssl-dev", "libssl-dev"),
    "python-ldap": ("libldap2-dev", "libsasl2-dev"),
    "pyyaml": ("libyaml-dev",),
    "h5py": ("libhdf5-dev", "pkg-config"),
    "netcdf4": ("libnetcdf-dev", "libhdf5-dev"),
    "numpy": ("gfortran", "libopenblas-dev", "pkg-config"),
    "scipy": ("gfortran", "libopenblas-dev", "pkg-config"),
    "matplotlib": ("libfreetype6-dev", "libpng-dev", "pkg-config"),
    "pygobject": ("libgirepository1.0-dev", "libcairo2-dev", "pkg-config"),
    "pycairo": ("libcairo2-dev", "pkg-config"),
    "dbus-python": ("libdbus-1-dev", "libglib2.0-dev", "pkg-config"),
    "pygraphviz": ("libgraphviz-dev", "pkg-config"),
    "gevent": ("libev-dev", "libc-ares-dev"),
    "pyzmq": ("libzmq3-dev", "pkg-config"),
    "python-magic": ("libmagic1",),
    "soundfile": ("libsndfile1",),
    "shapely": ("libgeos-dev",),
    "fiona": ("libgdal-dev",),
    "rtree": ("libspatialindex-dev",),
    "pyodbc": ("unixodbc-dev",),
    "pynacl": ("libsodium-dev",),
    "gmpy2": ("libgmp-dev", "libmpfr-dev", "libmpc-dev"),
    "opencv-python": ("libgl1", "libglib2.0-0"),
    "pyaudio": ("portaudio19-dev",),
    "cairocffi": ("libcairo2",),
    "weasyprint": ("libpango-1.0-0", "libpangoft2-1.0-0"),
    "brotli": (),
    "tables": ("libhdf5-dev", "libbz2-dev"),
    "bcrypt": ("libffi-dev", "cargo"),
    "orjson": ("cargo",),
    "tokenizers": ("cargo", "pkg-config"),
}
"""Debian packages that a Python distribution needs to be compiled or loaded."""
COMPILERS = ("build-essential", "python3-dev")
RETRYING = r"(?m)^\s*WARNING: Retrying .*$"
NAMED = r"[:\s]+[`'\"]?([A-Za-z0-9][\w.-]*?)(?:[=<>!~ ]=[\w.]+)?[`'\"\s(]"
NO_REASON = (
    r"(?i)\[exit code \d+|\[end of output|note:|hint:|[×╰│]"
    r"|error: (subprocess-exited|metadata-gen|\S*failed-build|failed (building|to build))"
)
"""Lines that only say that something failed."""


class BuildFailure(PatchgymError):
    """No environment could be built for a commit; the text is one line and says what to do."""

    def __init__(self, kind: Kind, line: str, log: Path) -> None:
        """`line` is the one of the log that matters."""
        super().__init__(f"{kind}: {line}; log: {log}; {ADVICE[kind]}")
        self.kind: Kind = kind
        self.line = line
        self.log = log


ADVICE: Mapping[Kind, str] = {
    "no_python_manifest": "give a recipe for the repository, or name the folder of a subproject",
    "python_version": "pull an image with that Python, or give a recipe with another base",
    "dependency_conflict": "give a recipe with versions that go together",
    "dependency_missing": "lend a folder of wheels that has it, or give a recipe without it",
    "compiler_missing": "give a recipe whose packages have the compiler",
    "system_library": "give a recipe whose packages have the library",
    "network": "check the index and its address, then try again",
    "timeout": "try again, or give a recipe that installs less",
    "disk": "free some space (patchgym images prune), then try again",
    "tests_not_collected": "give a recipe with what the tests import",
    "unknown": "read the log, and give a recipe",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """What a log says."""

    kind: Kind
    line: str
    """The line that matters, at most 300 characters."""


def classify(log: str) -> Classified:
    """Why a build failed, by its log: pip's, uv's, apt's, a compiler's or npm's."""
    text = _last_command(log)
    tried = re.search(RETRYING, text)
    if tried and "(from versions: none)" in text:
        return Classified(kind="network", line=_line(text, tried.start()))
    text = re.sub(RETRYING, "", text)  # what was got in the end is no reason
    if line := _other_python(text):
        return Classified(kind="python_version", line=line)
    for kind, pattern in SIGNS:
        found = re.search(pattern, text)
        if found:
            return Classified(kind=kind, line=_line(text, found.start()))
    return Classified(kind="unknown", line=_last_line(text))


def classify_collection(output: str) -> Classified:
    """What kept the tests from being collected, by what the runner printed."""
    for kind, pattern in SIGNS:
        found = re.search(pattern, output) if kind == "system_library" else None
        if found:
            return Classified(kind=kind, line=_line(output, found.start()))
    for pattern in NOT_COLLECTED:
        found = re.search(pattern, output)
        if found:
            return Classified(kind="tests_not_collected", line=_line(output, found.start()))
    return Classified(kind="tests_not_collected", line=_last_line(output))


def packages_for(log: str, kind: Kind) -> tuple[str, ...]:
    """Debian packages worth a try after a failure: a compiler, and what the table has for the
    distributions that the log says failed."""
    if kind not in ("compiler_missing", "system_library"):
        return ()
    text = _last_command(log) + "\n"
    names = re.findall(rf"(?i)(?:Failed to build|Failed building wheel for){NAMED}", text)
    # pip does not name what it could not even ask for its requirements
    names = names or re.findall(rf"(?m)^\s*Collecting{NAMED}", text)[-1:]
    found = {package for name in names for package in FIXES.get(_normal(name), ())}
    return tuple(sorted({*COMPILERS, *found}))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _last_command(log: str) -> str:
    """What the command printed that failed: the last one in a build's log."""
    return log[max(log.rfind("\n$ "), 0) :].partition("\n[exit code 0")[0]


def _line(text: str, place: int) -> str:
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    return text[start : end if end >= 0 else len(text)].strip()[:300]


def _other_python(text: str) -> str:
    """pip's line on versions for other Pythons, when what it looked for is among them."""
    wanted = re.search(r"satisfies the requirement \S+?==([\w.]+)", text)
    ignored = re.search(r"(?m)^.*require a different python version:.*$", text)
    if wanted is None or ignored is None:
        return ""
    found = re.search(rf"(?<![\w.]){re.escape(wanted[1])} Requires-Python [^;\n]*", ignored[0])
    return f"{wanted[0].rpartition(' ')[2]}: {found[0]}" if found else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(NO_REASON, line)]
    errors = [line for line in lines if re.match(r"(?i)(error|E|fatal|\w+Error)\b.*:", line)]
    if errors:
        return errors[-1][:300]
    return (lines or ["no output"])[-1][:300]
