"""Checks the files of .github: python3 packaging/checks/forge.py .github

Workflows: actions have a version, jobs a bound of time, and nobody has rights that are not named; scripts that they run are
there. Issue forms: the fields that the forge wants.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import yaml

VERSION = re.compile(r"^[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+$")
SCRIPT = re.compile(r"(?<![\w./~])((?:\.ci|packaging|tests|bindings)/[\w./-]+)")
ELEMENTS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def workflow(path: Path, made: dict[Any, Any]) -> list[str]:
    wrong = []
    # YAML 1.1 reads the key `on` as true.
    if True not in made and "on" not in made:
        wrong.append("no trigger")
    if made.get("permissions") != {"contents": "read"}:
        wrong.append("the rights of the workflow are not to read alone")
    for name, job in made["jobs"].items():
        if "timeout-minutes" not in job:
            wrong.append(f"{name}: no bound of time")
        for step in job["steps"]:
            if "uses" in step and not VERSION.match(step["uses"]):
                wrong.append(f"{name}: {step['uses']} has no version")
            for script in SCRIPT.findall(step.get("run", "")):
                if not os.access(script, os.X_OK):
                    wrong.append(f"{name}: {script} is no program")
    return wrong


def form(path: Path, made: dict[Any, Any]) -> list[str]:
    if path.name == "config.yml":
        return [] if "blank_issues_enabled" in made else ["no blank_issues_enabled"]
    wrong = [f"no {field}" for field in ("name", "description", "body") if not made.get(field)]
    names = [element["id"] for element in made["body"] if "id" in element]
    if len(set(names)) != len(names):
        wrong.append("an id is there twice")
    for element in made["body"]:
        if element["type"] not in ELEMENTS:
            wrong.append(f"no element {element['type']}")
        elif element["type"] != "markdown" and not element["attributes"].get("label"):
            wrong.append(f"{element.get('id')} has no label")
    return wrong


def main(root: str) -> int:
    failed, seen = 0, 0
    for folder, check in (("workflows", workflow), ("ISSUE_TEMPLATE", form)):
        for path in sorted(Path(root, folder).glob("*.yml")):
            seen += 1
            with open(path, encoding="utf-8") as text:
                for problem in check(path, yaml.safe_load(text)):
                    print(f"{path}: {problem}")
                    failed += 1
    print(f"{'ok' if not failed and seen else 'failed'} {seen} files, {failed} problems")
    return 0 if seen and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
