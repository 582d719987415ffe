"""The page over https, as a process of its own: it prints a link without a token, and its cookie is secure."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.support.waiting import LIMIT_S
from tests.support.web.logins import PASSWORD, write_users
from tests.support.web.page import plant_in

FILES = Path(__file__).parents[3] / "support" / "web" / "tls"
"""A self-signed certificate of localhost and its key, made for this test."""
TLS = {"certificate_file": "page.pem", "key_file": "page.key"}
COMMAND = (sys.executable, "-m", "streamad", "web", "--port", "0")


def copy_files(folder: Path) -> None:
    for name in ("page.pem", "page.key"):
        shutil.copy(FILES / name, folder)


def test_people_log_in_by_https_and_plain_http_gets_nothing(tmp_path: Path) -> None:
    plant_in(tmp_path, web={"tls": TLS, "auth": {"users": "users.json"}})
    copy_files(tmp_path)
    write_users(tmp_path, kim="operator")
    with subprocess.Popen(COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            link = process.stdout.readline().removeprefix("open ").strip()
            address = urlsplit(link)
            assert (address.scheme, address.path, address.query) == ("https", "/", "")
            context = ssl.create_default_context(cafile=str(FILES / "page.pem"))
            connection = HTTPSConnection(address.netloc, timeout=LIMIT_S, context=context)
            form = f"name=kim&password={quote(PASSWORD)}"
            kind = "application/x-www-form-urlencoded"
            connection.request("POST", "/login", form, {"origin": link.rstrip("/"), "content-type": kind})
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (303, b"")
            cookie = answer.headers["set-cookie"]
            assert "; Secure" in cookie
            connection.request("GET", "/", headers={"cookie": cookie.partition(";")[0]})
            assert b"kim (operator)" in connection.getresponse().read()
            connection.close()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("damage", "said"),
    [("no key", "web.tls.key_file"), ("junk", "are no certificate with its private key"), ("swapped", "are no certif")],
)
def test_files_that_are_none_are_one_line(damage: str, said: str, tmp_path: Path) -> None:
    plant_in(tmp_path, web={"tls": TLS})
    copy_files(tmp_path)
    if damage == "no key":
        (tmp_path / "page.key").unlink()
    elif damage == "junk":
        (tmp_path / "page.key").write_text("junk")
    else:
        (tmp_path / "page.key").write_bytes((tmp_path / "page.pem").read_bytes())
    done = subprocess.run(COMMAND, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
