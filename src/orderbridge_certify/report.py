"""Writes the report as JSON, as JUnit XML for builds, and as HTML."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from orderbridge import __version__
from orderbridge.texts import say, spoken
from orderbridge_certify.seen import Verdict

FILES = ("report.json", "report.junit.xml", "report.html")

Report = dict[str, Any]
Result = dict[str, Any]  # the result of a scenario as JSON: verdict, took_s and the criteria


def made(terms: Mapping[str, Any], results: Mapping[str, Result], *, is_whole: bool) -> Report:
    """The contents of the three files. `is_whole`: every scenario has been played."""
    scenarios = [_scenario(name, result) for name, result in results.items()]
    counted = Counter(one["verdict"] for scenario in scenarios for one in scenario["criteria"])
    return {
        "till": terms["till"],
        "verdict": str(Verdict.FAIL if counted[Verdict.FAIL] else Verdict.PASS if is_whole else Verdict.NOT_SEEN),
        "counts": {str(verdict): counted[verdict] for verdict in Verdict},
        "orderbridge": __version__,
        "terms": {name: value for name, value in terms.items() if name != "till"},
        "language": spoken(),
        "scenarios": scenarios,
    }


def _scenario(name: str, result: Result) -> Report:
    criteria = [
        {
            "name": one["name"],
            "sentence": say(f"certify.criteria.{one['name']}"),
            "verdict": one["verdict"],
            "why": say(f"certify.why.{one['why']}") if one["why"] else "",
            "facts": one["facts"],
        }
        for one in result["criteria"]
    ]
    sentence = say(f"certify.scenarios.{name}")
    return {"name": name, "sentence": sentence, **result, "criteria": criteria}


def write(report: Report, folder: Path) -> None:
    """Write the three files, each atomically."""
    texts = (json.dumps(report, ensure_ascii=False, indent=2) + "\n", _junit(report), _html(report))
    for name, written in zip(FILES, texts, strict=True):
        fresh = folder / f"{name}.new"
        fresh.write_text(written, encoding="utf-8")
        fresh.replace(folder / name)


# ---- JUnit -----------------------------------------------------------------------------------------------------------


def _junit(report: Report) -> str:
    top = ET.Element("testsuites", name=report["till"])
    totals: Counter[str] = Counter()
    for scenario in report["scenarios"]:
        suite = ET.SubElement(top, "testsuite", name=scenario["name"], time=f"{scenario['took_s']:.3f}")
        own: Counter[str] = Counter()
        for one in scenario["criteria"]:
            case = ET.SubElement(suite, "testcase", classname=scenario["name"], name=one["name"])
            own["tests"] += 1
            if one["verdict"] == Verdict.FAIL:
                own["failures"] += 1
                failure = ET.SubElement(case, "failure", message=f"{one['sentence']} {one['why']}")
                failure.text = json.dumps(one["facts"], ensure_ascii=False)
            elif one["verdict"] != Verdict.PASS:
                own["skipped"] += 1
                ET.SubElement(case, "skipped", message=f"{one['verdict']}: {one['why']}")
        totals += own
        _count(suite, own)
    _count(top, totals)
    ET.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(top, encoding="unicode") + "\n"


def _count(element: ET.Element, counted: Mapping[str, int]) -> None:
    for name in ("tests", "failures", "skipped"):
        element.set(name, str(counted.get(name, 0)))
    element.set("errors", "0")


# ---- HTML ------------------------------------------------------------------------------------------------------------

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{margin-bottom:.2rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}
table{border-collapse:collapse;width:100%}
td,th{border-top:1px solid #ccc;padding:.4rem .5rem;text-align:left;vertical-align:top}
td:first-child{white-space:nowrap;width:9rem;font-weight:600}
.PASS{color:#17692f}.FAIL{color:#b00020}.NOT{color:#6b5900}.BY{color:#0b4f8a}
code{font-size:.85rem;overflow-wrap:anywhere}.big{font-size:1.4rem;font-weight:700}
"""


def _html(report: Report) -> str:
    title = escape(say("certify.title", till=report["till"]))
    counts = ", ".join(f"{name}: {number}" for name, number in report["counts"].items())
    terms = ", ".join(f"{name}: {value}" for name, value in report["terms"].items())
    return (
        f'<!DOCTYPE html>\n<html lang="{report["language"]}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f'<p class="big {report["verdict"]}">{report["verdict"]}</p>\n<p>{escape(counts)}</p>\n'
        f"<p>orderbridge {escape(report['orderbridge'])} · {escape(terms)}</p>\n"
        f"<p>{escape(say('certify.legend'))}</p>\n"
        f"{''.join(_section(one) for one in report['scenarios'])}</body>\n</html>\n"
    )


def _section(scenario: Report) -> str:
    rows = "".join(_row(one) for one in scenario["criteria"])
    return f"<h2>{escape(scenario['sentence'])}</h2>\n<table>\n{rows}</table>\n"


def _row(one: Report) -> str:
    shown = "<br>".join(escape(line) for line in _lines(one["facts"]))
    why = f" {escape(one['why'])}" if one["why"] else ""
    kind = one["verdict"].partition(" ")[0]
    below = f"<br><code>{shown}</code>" if shown else ""
    return f'<tr><td class="{kind}">{one["verdict"]}</td><td>{escape(one["sentence"])}{why}{below}</td></tr>\n'


def _lines(facts: Iterable[Mapping[str, Any]]) -> list[str]:
    return [", ".join(f"{name} {value}" for name, value in one.items()) for one in facts]
