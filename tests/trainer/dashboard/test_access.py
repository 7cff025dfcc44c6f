"""Who gets a page: names of the server, the token, forms from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboard_runs import client_of, finished
from starlette.testclient import TestClient

from patchgym.trainer.dashboard.access import HEADERS, access_for
from patchgym.trainer.dashboard.app import create_app
from patchgym.trainer.errors import UserError

TOKEN = "a-token-of-many-letters"


def asked_as(root: Path, host: str) -> int:
    return client_of(root).get("/runs", headers={"host": host}).status_code


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost", "LOCALHOST:1", "[::1]:8642"])
def test_names_of_this_machine_get_a_page(tmp_path: Path, host: str) -> None:
    assert asked_as(tmp_path, host) == 200


@pytest.mark.parametrize(
    "host", ["rebound.example", "127.0.0.1.rebound.example", "localhost.evil", "8.8.8.8", ""]
)
def test_another_name_gets_none(tmp_path: Path, host: str) -> None:
    assert asked_as(tmp_path, host) == 421


def test_a_name_that_was_given_gets_a_page(tmp_path: Path) -> None:
    access = access_for("127.0.0.1", "", ["runs.lab"])
    client = TestClient(create_app(tmp_path, access=access), base_url="http://runs.lab")
    assert client.get("/runs").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "runs.lab"])
def test_others_reach_no_server_without_a_token(host: str) -> None:
    with pytest.raises(UserError, match="give a token"):
        access_for(host, "")
    assert access_for(host, TOKEN).token == TOKEN


def test_a_short_token_is_refused() -> None:
    with pytest.raises(UserError, match="16 at least"):
        access_for("0.0.0.0", "short")


def test_without_the_token_nothing_is_shown(tmp_path: Path) -> None:
    finished(tmp_path, "secret-name")
    client = client_of(tmp_path, TOKEN)
    for path in ("/runs", "/runs/secret-name", "/runs/secret-name/now", "/compare", "/sandboxes"):
        answer = client.get(path)
        assert answer.status_code == 401, path
        assert "secret-name" not in answer.text.replace(path, "")


def test_the_first_visit_leaves_a_cookie_and_no_token_in_the_address(tmp_path: Path) -> None:
    client = client_of(tmp_path, TOKEN)
    answer = client.get("/runs", params={"token": TOKEN, "q": "x"}, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/runs?q=x"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie
    assert TOKEN not in cookie
    assert client.get("/runs").status_code == 200


def test_a_wrong_token_and_a_wrong_cookie_are_told_apart_from_none(tmp_path: Path) -> None:
    client = client_of(tmp_path, TOKEN)
    assert "That is not the token" in client.get("/runs", params={"token": "x" * 20}).text
    access = access_for("127.0.0.1", TOKEN)
    client.cookies.set(access.cookie, "0" * 64)
    assert client.get("/runs").status_code == 401


def test_programs_show_the_token_as_a_bearer(tmp_path: Path) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert client_of(tmp_path, TOKEN).get("/runs", headers=headers).status_code == 200


def test_the_address_of_another_server_is_no_way_on(tmp_path: Path) -> None:
    client = client_of(tmp_path, TOKEN)
    answer = client.get(
        "http://127.0.0.1:8642//evil.example/", params={"token": TOKEN}, follow_redirects=False
    )
    assert answer.headers["location"] == "/evil.example/"


@pytest.mark.parametrize("path", ["/runs", "/runs/none", "/static/0/none.css", "/nothing"])
def test_every_answer_has_the_headers(tmp_path: Path, path: str) -> None:
    answer = client_of(tmp_path).get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_no_script_may_stand_in_a_page() -> None:
    rules = dict(
        rule.strip().split(" ", 1) for rule in HEADERS["Content-Security-Policy"].split(";")
    )
    assert rules["script-src"] == "'self'"
    assert rules["style-src"] == "'self'"
    assert rules["default-src"] == "'none'"


def test_a_form_from_elsewhere_is_refused(tmp_path: Path) -> None:
    finished(tmp_path, "run")
    client = client_of(tmp_path)
    for form in ({}, {"form": ""}, {"form": "0" * 64}, {"seconds": "5"}):
        answer = client.post("/runs/run/captures", data=form)
        assert answer.status_code == 403
    assert not (tmp_path / "run" / "profile").exists()


def test_a_form_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    answer = client_of(tmp_path).post("/runs/run/captures", data={"form": "x" * 100_000})
    assert answer.status_code == 413
