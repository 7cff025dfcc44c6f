"""JUnit XML in the shapes that real runners write, and in those that attackers would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.sandbox.testing.junit import LIMIT, ReportError, merge, read_junit

SUREFIRE = b"""<?xml version="1.0" encoding="UTF-8"?>
<testsuite xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" name="org.x.MapTest" tests="3">
  <properties><property name="java.version" value="17"/></properties>
  <testcase name="puts" classname="org.x.MapTest" time="0.012"/>
  <testcase name="gets[k, 1]" classname="org.x.MapTest" time="1,002.5">
    <failure message="expected: &lt;1&gt; but was: &lt;2&gt;" type="E"><![CDATA[at X]]></failure>
  </testcase>
  <testcase name="later" classname="org.x.MapTest"><skipped message="not yet"/></testcase>
</testsuite>"""
GOTESTSUM = b"""<testsuites tests="3" failures="1"><testsuite name="example.com/m/calc">
  <testcase classname="example.com/m/calc" name="TestAdd/two_and two" time="0.000000"></testcase>
  <testcase classname="example.com/m/calc" name="TestSub" time="0.010000">
    <failure message="Failed" type="">calc_test.go:12: got 3</failure></testcase>
  </testsuite></testsuites>"""
JEST = b"""<testsuites name="jest tests"><testsuite name="sum">
  <testcase classname="sum adds \xe2\x9c\x93 1 + 2" name="sum adds \xe2\x9c\x93 1 + 2" time="0.003"
   file="src/sum.test.js"/></testsuite></testsuites>"""
NEXTEST = b"""<testsuites name="nextest-run"><testsuite name="calc::bin/calc">
  <testcase name="tests::flaky" classname="calc::bin/calc" time="0.1">
    <flakyFailure type="test failure"/></testcase>
  <testcase name="tests::bad" classname="calc::bin/calc"><error type="abort">sigsegv</error>
   <rerunFailure type="x"/></testcase></testsuite></testsuites>"""
NODE = b"""<testsuites><testcase name="parses" time="0.001" classname="test" file="/w/a.test.js"/>
  <testsuite name="nested"><testcase name="deep" classname="test"/></testsuite></testsuites>"""
BOMB = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>"""


def outcomes(data: bytes) -> dict[str, str]:
    return {test: run.outcome for test, run in read_junit(data)[0].items()}


def test_real_shapes_are_read() -> None:
    assert outcomes(SUREFIRE) == {
        "org.x.MapTest::puts": "passed",
        "org.x.MapTest::gets[k, 1]": "failed",
        "org.x.MapTest::later": "skipped",
    }
    assert outcomes(GOTESTSUM) == {
        "example.com/m/calc::TestAdd/two_and two": "passed",
        "example.com/m/calc::TestSub": "failed",
    }
    assert list(outcomes(JEST).values()) == ["passed"]
    assert outcomes(NEXTEST) == {
        "calc::bin/calc::tests::flaky": "passed",
        "calc::bin/calc::tests::bad": "error",
    }
    assert outcomes(NODE) == {"test::parses": "passed", "test::deep": "passed"}


def test_messages_times_and_other_names_come_along() -> None:
    tests, names = read_junit(SUREFIRE)
    bad = tests["org.x.MapTest::gets[k, 1]"]
    assert (bad.message, bad.seconds) == ("expected: <1> but was: <2>", 1002.5)
    assert names["puts"] == names["org.x.MapTest.puts"] == ("org.x.MapTest::puts",)
    assert "src/sum.test.js::sum adds ✓ 1 + 2" in read_junit(JEST)[1]


def test_a_test_told_twice_has_its_worst_outcome() -> None:
    data = b'<s><testcase name="a"/><testcase name="a"><failure/></testcase></s>'
    assert outcomes(data) == {"a": "failed"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (BOMB, "document type"),
        (SUREFIRE[:200], "no XML"),
        (b"", "no XML"),
        (b"all tests passed", "no XML"),
        (b"<" * 100_000, "no XML"),
        (b"<a>" * 200_000, "no XML"),
        (b"<s>" + b" " * LIMIT + b"</s>", "over 16 MiB"),
    ],
)
def test_hostile_reports_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        read_junit(data)


def test_several_documents_become_one() -> None:
    assert len(outcomes(merge([SUREFIRE, GOTESTSUM]))) == 5
    with pytest.raises(ReportError):
        read_junit(merge([SUREFIRE, SUREFIRE[:100]]))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_junit(b"<s><testcase name='a'/>" + data + b"</s>")
    except ReportError as error:
        assert str(error)
