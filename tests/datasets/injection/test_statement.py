"""Reports: what is seen and what was expected, and nothing of the fault's own code."""

from patchgym.datasets.injection.statement import report_bug, subject

TEST = "tests/test_price.py::test_quarter_off"


def tell(message: str, *code: str) -> str:
    """The report of one failure."""
    return report_bug("shop", {TEST: message}, code=frozenset(code), choice=1)


def test_a_comparison_says_what_is_and_what_should_be() -> None:
    text = tell("assert discount(80, 25) == 60\ngot 79.75")
    assert text == (
        "I get wrong behaviour from shop.\n\n"
        "With quarter off: `discount(80, 25)` should be `60`, but it is not: I get `79.75`.\n\n"
        "`test_quarter_off` (in `tests/test_price.py`) fails because of it; it passed before.\n"
    )


def test_an_exception_in_the_library_does_not_give_its_place_away() -> None:
    text = tell("KeyError: 'rate'\nat shop/price.py:12: return rates[name]", "return rates[name]")
    assert "With quarter off: It raises `KeyError: 'rate'`" in text
    assert "price.py:12" not in text and "rates[name]" not in text


def test_an_exception_in_the_test_shows_the_call() -> None:
    text = tell("TypeError: bad\nat tests/test_price.py:3: discount(80, 25)")
    assert "`discount(80, 25)` raises `TypeError: bad`" in text


def test_a_line_of_the_faulty_file_is_never_quoted() -> None:
    text = tell("assert rate < 1\nassert 2 < 1", "assert rate < 1")
    assert "rate < 1" not in text


def test_an_exception_that_does_not_come_is_named() -> None:
    text = tell(
        "Failed: DID NOT RAISE <class 'ValueError'>\nat tests/test_price.py:3: with raises():"
    )
    assert "no `ValueError` is raised where one is expected" in text


def test_addresses_and_temporary_paths_are_left_out() -> None:
    text = tell("ValueError: <x at 0x7fe2a44b8a50> in /tmp/pytest-of-agent/pytest-0/a")
    assert "7fe2" not in text and "pytest-0" not in text


def test_many_tests_are_counted_and_without_details_only_named() -> None:
    failing = {f"tests/test_price.py::test_{number}": "assert x == 1\ngot 2" for number in range(6)}
    text = report_bug("shop", failing, code=frozenset(), choice=0, details=False)
    assert "and 3 more tests" in text
    assert "got" not in text and "x" not in text.partition("(in")[0].replace("exp", "")


def test_a_test_is_about_what_its_name_says() -> None:
    assert subject("t.py::TestX::test_partition_all[3-a_b]") == "partition all"
    assert subject("t.py::TestX::testSplitsLines") == "splits lines"


def test_tests_that_can_not_be_loaded_say_why() -> None:
    text = tell("      ^^^^^\nE   ImportError: cannot import name 'rate'")
    assert "Loading the tests raises `ImportError: cannot import name 'rate'`" in text
