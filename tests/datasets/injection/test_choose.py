"""The choice: seeded, spread, in combination, and the same whatever the speed."""

from collections import Counter
from pathlib import Path

from patchgym.datasets.injection.choose import Chooser, Mutant, parts
from patchgym.datasets.injection.coverage import Survey
from patchgym.datasets.injection.difficulty import difficulty
from patchgym.datasets.injection.mutations import places
from patchgym.datasets.injection.source import Source, compiles
from patchgym.datasets.injection.trials import tests_for as chosen_tests

FILES = ("datasets/repository.py", "datasets/recipes.py")


def make(root: Path, seed: int, combine: float = 0.3) -> tuple[Chooser, dict[str, Source], Survey]:
    """A chooser on two files of ours, each line of which one of two tests runs."""
    sources = {name: Source(name, (root / name).read_bytes()) for name in FILES}
    lines = {
        name: {line: ("t.py::a", "t.py::b")[line % 2 :] for line in range(1, 500)} for name in FILES
    }
    survey = Survey(tests={"t.py::a": 0.1, "t.py::b": 0.2}, unstable=(), lines=lines)
    found = [place for name in FILES for place in places(sources[name])]
    return Chooser(found, sources, survey, seed=seed, combine=combine), sources, survey


def keys(mutants: list[Mutant]) -> list[str]:
    """What identifies them."""
    return [mutant.key for mutant in mutants]


def test_the_same_seed_chooses_the_same(root: Path) -> None:
    first, again, other = (make(root, seed)[0] for seed in (1, 1, 2))
    batch = first.batch(60)
    assert keys(batch) == keys(again.batch(60)) != keys(other.batch(60))
    assert len(set(keys(batch))) == 60


def test_it_spreads_over_kinds_files_and_functions(root: Path) -> None:
    chooser = make(root, 0, combine=0)[0]
    batch = chooser.batch(60)
    kinds = Counter(mutant.kind for mutant in batch)
    assert len(kinds) >= 15
    assert max(kinds.values()) <= 6
    assert min(Counter(mutant.places[0].path for mutant in batch).values()) >= 15
    assert len({mutant.places[0].function for mutant in batch}) >= 30


def test_combinations_are_two_bugs_of_one_file_that_a_test_runs_both(root: Path) -> None:
    chooser, sources, survey = make(root, 0)
    pairs = [mutant for mutant in chooser.batch(80) if mutant.kind == "combined"]
    assert 10 <= len(pairs) <= 40
    for mutant in pairs:
        first, second = mutant.places
        assert first.path == second.path and first.kind != second.kind
        assert all(compiles(data) for data in mutant.files.values())
        assert len(parts(mutant, sources, survey)) == 2


def test_what_no_test_runs_is_not_chosen(root: Path) -> None:
    source = Source(FILES[0], (root / FILES[0]).read_bytes())
    nobody = Survey(tests={"t.py::a": 0.1}, unstable=(), lines={})
    chooser = Chooser(list(places(source)), {FILES[0]: source}, nobody, seed=0, combine=0)
    assert chooser.covered == 0
    assert chooser.batch(5) == []


def test_few_tests_get_neighbours_of_the_same_file() -> None:
    tests = {f"{name}::t{number}": 0.1 for name in ("a.py", "b.py") for number in range(30)}
    survey = Survey(tests=tests, unstable=(), lines={"m.py": {1: ("a.py::t7",)}})
    found = chosen_tests(frozenset(("a.py::t7",)), survey)
    assert found[0] == "a.py::t7"
    assert len(found) == 20
    assert all(test.startswith("a.py") for test in found)


def test_two_bugs_far_from_a_single_test_are_harder(root: Path) -> None:
    batch = make(root, 0)[0].batch(80)
    pair = next(mutant for mutant in batch if mutant.kind == "combined")
    plain = next(mutant for mutant in batch if mutant.kind == "comparison")
    easy = difficulty(plain, failing=30, reach=5)
    hard = difficulty(pair, failing=1, reach=900)
    assert 0 < easy < 0.3 < 0.6 < hard <= 0.95
