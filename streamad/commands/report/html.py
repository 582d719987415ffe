"""HTML that cannot hold a name or a note as markup: whatever is no ``Html`` already is escaped."""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence

from streamad.safe_text import masked, visible_name


class Html(str):
    """Text that is HTML already; every other string is escaped."""

    __slots__ = ()


_EMPTY = frozenset({"img", "input", "meta"})


def text(value: str) -> Html:
    """Return ``value`` escaped, controls and changes of direction as escapes, secrets masked."""
    return Html(html.escape(visible_name(masked(value)), quote=True))


def element(name: str, /, *content: str, **attributes: str) -> Html:
    """Return an element of HTML; attributes are escaped as well, ``class_`` is the attribute class."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Return the parts one after the other, escaped unless they are HTML."""
    return Html("".join(_escaped(part) for part in parts))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, long: Collection[str] = ()) -> Html:
    """Return a table with a head; cells of the columns ``long`` may have several lines."""
    classes = ["long" if name in long else "short" for name in heads]
    head = element("tr", *(element("th", each, scope="col") for each in heads))
    body = [
        element("tr", *(element("td", cell, class_=name) for cell, name in zip(row, classes, strict=True)))
        for row in rows
    ]
    whole = element("table", element("thead", head), element("tbody", *body))
    return element("div", whole, class_="wide")


def picture(content: bytes, said: str) -> Html:
    """Return a PNG inside of the page; ``said`` says in words what it shows."""
    return element("img", src=f"data:image/png;base64,{b64encode(content).decode('ascii')}", alt=said)


def page(title: str, *content: Html) -> str:
    """Return the whole document, which asks for nothing from elsewhere and runs nothing: its policy forbids it."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(_STYLE)),
    )
    body = element("body", element("main", *content))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _escaped(part: str) -> str:
    return part if isinstance(part, Html) else text(part)


_STYLE = """
body{margin:0;background:#fff;color:#1d1d1d;font:15px/1.45 system-ui,sans-serif}
main{max-width:68rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.6rem;margin:0 0 .2rem}h2{font-size:1.2rem;margin:2.4rem 0 .6rem;border-bottom:1px solid #c4c4c4}
h3{font-size:1.02rem;margin:0 0 .2rem}p{margin:.35rem 0}.soft{color:#595959}.odd{color:#a32014;font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;margin:.5rem 0}
th,td{text-align:left;vertical-align:top;padding:.22rem .9rem .22rem 0;border-bottom:1px solid #e4e4e4}
th{font-weight:600;color:#595959}h3,p,li{overflow-wrap:anywhere}
td.short{white-space:nowrap}td.long{min-width:14rem;overflow-wrap:anywhere}
section.alert{margin:1.6rem 0;padding:.8rem 1rem;border:1px solid #d6d6d6;border-radius:4px;break-inside:avoid}
img{max-width:100%;height:auto;display:block;margin:.5rem 0}ul{margin:.3rem 0;padding-left:1.2rem}
"""
